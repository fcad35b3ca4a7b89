"""Retries transient errors with exponential backoff, and no others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from time import time
from typing import Protocol, TypeVar

from evalloom.core.errors import CallError
from evalloom.core.http.reply import Reply
from evalloom.core.http.urls import display_url

RETRIES = 5
_LONGEST_WAIT_S = 300.0

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]


class Wait(Protocol):
    """Waits for something that does not fail, and returns its result."""

    def __call__(self, awaited: Awaitable[Result], /) -> Awaitable[Result]: ...


sleeping: ContextVar[Sleep] = ContextVar("sleeping", default=asyncio.sleep)
"""The sleep before a retry; the scheduler sets one that releases the slot of the run."""


def _await(awaited: Awaitable[Result], /) -> Awaitable[Result]:
    return awaited


waiting: ContextVar[Wait] = ContextVar("waiting", default=_await)
"""How a call waits for another one, which may need the slot of the run: the scheduler sets one that releases it."""


def status_error(reply: Reply, detail: str, url: str = "") -> CallError:
    """Return the error for a status other than 2xx; `detail` is the message of the server at the URL."""
    is_transient = reply.status in (408, 429) or reply.status >= 500
    message = f"HTTP {reply.status}: {detail}" if detail else f"HTTP {reply.status}"
    if url:
        message += f" ({display_url(url)})"
    return CallError(f"http_{reply.status}", message, is_transient, _retry_after(reply.headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds; the header is a number or a date."""
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


async def retry(
    call: Callable[[], Awaitable[Result]],
    retries: int = RETRIES,
    on_retry: Callable[[CallError], None] = lambda error: None,
) -> tuple[Result, int]:
    """Return the result of a call and the number of retries; retries transient errors only."""
    for attempt in range(retries + 1):
        try:
            return await call(), attempt
        except CallError as error:
            asked_s = (error.retry_after or 0.0) if error.is_transient else 0.0
            if not error.is_transient or attempt == retries or asked_s > _LONGEST_WAIT_S:
                message = error.message
                if asked_s > _LONGEST_WAIT_S:
                    message += f"; it asks to wait {asked_s:.0f} s, which is more than {_LONGEST_WAIT_S:.0f} s"
                if attempt:
                    message += f"{' Gave' if message.endswith('?') else '; gave'} up after {attempt + 1} attempts"
                raise CallError(error.code, message, error.is_transient, error.retry_after) from None
            on_retry(error)
            await sleeping.get()(_delay(error, attempt))
    raise AssertionError("the last attempt returns or raises")


def _delay(error: CallError, attempt: int) -> float:
    """Return the pause before the next attempt: twice as long each time, with jitter."""
    # Not from `random`, whose import takes longer than a first pause may.
    chance = int.from_bytes(os.urandom(4)) / 2**32
    pause: float = min(0.25 * 2**attempt, 30.0) * (0.5 + chance / 2)
    if error.retry_after is None:
        return pause
    # Never earlier than the server asks, and a little later, so that calls that failed together do not return
    # together: at first at most twice what it asks, because a server that asks for milliseconds means them.
    return error.retry_after + (min(pause, 0.25) if attempt else chance * min(error.retry_after, 0.25))
