"""Trying again: what can heal is repeated, each time after a longer pause, and never what cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from time import time
from typing import TypeVar

from evalloom.core.errors import CallError
from evalloom.core.http.reply import Reply

RETRIES = 5
_LONGEST_WAIT_S = 300.0

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]

sleeping: ContextVar[Sleep] = ContextVar("sleeping", default=asyncio.sleep)
"""How a call waits before it tries again; the scheduler puts in a sleep that gives the run's slot to another."""


def status_error(reply: Reply, said: str) -> CallError:
    """The error that a status other than 2xx is; `said` is what the other side wrote about it."""
    is_transient = reply.status in (408, 429) or reply.status >= 500
    told = f": {said}" if said else ""
    message = f"HTTP {reply.status}{told}"
    return CallError(f"http_{reply.status}", message, is_transient, _retry_after(reply.headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds, whether it is written as seconds or as a date."""
    text = headers.get("retry-after")
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, OverflowError):
        return None


async def retry(call: Callable[[], Awaitable[Result]], retries: int = RETRIES) -> tuple[Result, int]:
    """The result of a call and how often it had to be repeated; only what can heal is tried again."""
    for attempt in range(retries + 1):
        try:
            return await call(), attempt
        except CallError as fault:
            if not fault.is_transient or attempt == retries or (fault.retry_after or 0) > _LONGEST_WAIT_S:
                raise _given_up(fault, attempt) from None
            await sleeping.get()(_delay(fault, attempt))
    raise AssertionError("the last attempt returns or raises")


def _delay(error: CallError, attempt: int) -> float:
    """Return the pause before the next attempt: twice as long each time, with jitter."""
    from random import uniform  # deferred: few calls fail

    pause: float = min(0.25 * 2**attempt, 30.0) * uniform(0.5, 1.0)
    if error.retry_after is None:
        return pause
    # Never earlier than the server asks, and a little later, so that calls that failed together do not return
    # together: at first at most twice what it asks, because a server that asks for milliseconds means them.
    return error.retry_after + (min(pause, 0.25) if attempt else uniform(0.0, min(error.retry_after, 0.25)))


def _given_up(fault: CallError, attempt: int) -> CallError:
    if not attempt:
        return fault
    message = f"{fault.message}; given up after {attempt + 1} attempts"
    return CallError(fault.code, message, fault.is_transient, fault.retry_after)
