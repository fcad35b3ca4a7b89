"""Copies of this process that work on parts of a task, to use all cores."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from time import sleep
from typing import Any, Generic, TypeVar

from evalloom.core.memory import is_limited

_MOST = 8
_SENDING_S = 5.0
Argument = TypeVar("Argument")
Result = TypeVar("Result")


def most_processes() -> int:
    """Return how many copies of this process can work at once; 1 where it cannot be copied."""
    import multiprocessing  # deferred, as below: most tasks are small

    # A copy has none of the other threads, and a lock that one of them holds stays locked in it. Where memory is
    # limited, a thread of the pool may not start, and its futures would wait for ever.
    if "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1 or is_limited():
        return 1
    return min(os.cpu_count() or 1, _MOST)


class Processes(Generic[Argument, Result]):
    """Copies of this process, made at once, that apply a function to arguments."""

    def __init__(self, number: int, function: Callable[[Argument], Result]) -> None:
        """Raise OSError or NotImplementedError where memory or semaphores for them are missing."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self._number = number
        # A copy ends when the last end of this pipe closes, also because this process was killed.
        reader, self._writer = os.pipe()
        pool = ProcessPoolExecutor(
            number, multiprocessing.get_context("fork"), initializer=_start, initargs=(function, reader, self._writer)
        )
        self._pool = pool
        # A signal that reached a copy before it ignores it would end it with a traceback.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pool.submit(os.getpid)  # makes the copies
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(reader)

    def map(self, arguments: Iterable[Argument]) -> Iterator[tuple[Argument, Result | None]]:
        """Yield each argument with its result, in order; None where the function raised or its process died."""
        for argument, future in self._submit(arguments):
            result = None
            with suppress(BrokenExecutor):
                result = future.result()
            yield argument, result

    async def map_async(self, arguments: Iterable[Argument]) -> AsyncIterator[tuple[Argument, Result | None]]:
        """As `map`, for an event loop."""
        for argument, future in self._submit(arguments):
            result = None
            with suppress(BrokenExecutor):
                # Never cancel a future: the pool of Python 3.11 can then wait for ever.
                result = await asyncio.shield(asyncio.wrap_future(future))
            yield argument, result

    def _submit(self, arguments: Iterable[Argument]) -> Iterator[tuple[Argument, Future[Result | None]]]:
        """Yield each argument with the future of its result; for each process, one more is under way."""
        waiting: deque[tuple[Argument, Future[Result | None]]] = deque()
        for argument in arguments:
            try:
                future = self._pool.submit(_apply, argument)
            except BrokenExecutor:
                future = Future()
                future.set_result(None)
            waiting.append((argument, future))
            if len(waiting) > 2 * self._number:
                yield waiting.popleft()
        yield from waiting

    def close(self) -> None:
        """End the copies, also in the middle of their work."""
        os.close(self._writer)
        self._pool.shutdown()


_function: Callable[[Any], Any]
_state = threading.Lock()
"""Guards the two that follow."""
_is_working = False
_is_over = False


def _start(function: Callable[[Any], Any], reader: int, writer: int) -> None:
    global _function
    _function = function
    os.close(writer)
    # Ctrl-C is for the first process, which ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(reader,), daemon=True).start()
    # Records have no reference cycles, so the cycle collector would only cost time.
    gc.disable()


def _end_with(reader: int) -> None:
    """End this copy when the pipe closes, but not in the middle of a result, whose rest would be waited for."""
    global _is_over
    os.read(reader, 1)
    with _state:
        _is_over = True
        if _is_working:
            os._exit(1)
    # Nobody reads the result if the first process was killed.
    sleep(_SENDING_S)
    os._exit(1)


def _apply(argument: Any) -> Any:
    _set_working(True)
    try:
        return _function(argument)
    except Exception:  # it is applied again where its error can be shown
        return None
    finally:
        _set_working(False)


def _set_working(is_working: bool) -> None:
    global _is_working
    with _state:
        if _is_over:
            os._exit(1)
        _is_working = is_working
