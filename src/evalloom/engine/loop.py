"""The event loop that everything async runs on, and how it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar

from evalloom.core.text import pluralize
from evalloom.core.threads import hanging_names
from evalloom.core.user_loop import abandoned_names, warnings_to

Result = TypeVar("Result")
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, the end that a service manager asks for, and the end of the terminal."""
_END_S = 0.3
"""How long interrupted threads may take to end before they are reported."""


@contextmanager
def stopping(stop: asyncio.Event, max_time: float | None) -> Iterator[Callable[[], str]]:
    """Sets `stop` on Ctrl-C and when the time is up; gives a function that says which it was."""
    loop, reasons = asyncio.get_running_loop(), [""]

    def end(reason: str) -> None:
        reasons.append(reason)
        stop.set()
        # A second Ctrl-C does not wait for anything.
        _forget_signals(loop)

    timer = loop.call_later(max_time, end, f"--max-time {max_time:g} is over") if max_time is not None else None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # no signals here: Windows, or not the main thread
        for number in _SIGNALS:
            # Under nohup the end of the terminal is ignored, and stays so.
            if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) == signal.SIG_DFL:
                loop.add_signal_handler(number, end, "interrupted")
    try:
        yield lambda: reasons[-1]
    finally:
        if timer is not None:
            timer.cancel()
        _forget_signals(loop)


_blocked = threading.local()


def _block_signals() -> None:
    """Let a forked process get no signal before it has its own: on a busy machine it may be slow to start."""
    _blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _forget_signals_in_child() -> None:
    """Give a process that users' code forked its own signals: those that it gets would also reach our loop."""
    with suppress(ValueError, OSError):
        if signal.set_wakeup_fd(-1) >= 0:
            for number in _SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_forget_signals_in_child
    )


def _forget_signals(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def watching_users_code(warn: Callable[[str], None]) -> Iterator[None]:
    """Warns when users' code blocks its event loop, and in the end of threads that could not be ended."""
    with warnings_to(warn):
        yield
    end = monotonic() + _END_S
    while (names := [*abandoned_names(), *hanging_names()]) and monotonic() < end:
        # An interrupt that is under way takes a moment.
        sleep(0.02)
    if names:
        functions = ", ".join(f"{name}()" for name in dict.fromkeys(names))
        threads = f"{pluralize(len(names), 'thread')} of users' code could not be ended: {functions}"
        warn(f"{threads}. Give what the code waits for a time limit of its own [threads_left]")


def run_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs async work to its end on the fastest loop there is; in a notebook, whose loop is running, beside it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    cancel: Future[Callable[[], object]] = Future()

    async def cancellable() -> Result:
        task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
        cancel.set_result(partial(loop.call_soon_threadsafe, task.cancel))
        return await task

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(_run, cancellable())
        try:
            return done.result()
        except KeyboardInterrupt:
            # The interrupt of a notebook reaches only this thread.
            cancel.result()()
            raise


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    results: list[Result] = []

    async def keep() -> None:
        # Not as the result of the task: `asyncio.Runner` formats its task, and `repr(Results)` reads the whole batch.
        results.append(await work)

    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(keep())
    else:
        uvloop.run(keep())
    return results[0]
