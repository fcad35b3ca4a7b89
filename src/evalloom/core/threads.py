"""A pool of daemon threads for blocking functions, which does not delay the exit of the program."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from evalloom.core.errors import CallError

_MOST_THREADS = 512


class _Job(NamedTuple):
    """A call, and the future that waits for it."""

    function: Callable[[], Any]
    variables: Variables
    waiting: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Threads:
    """Runs blocking calls in daemon threads, one for each call in flight, up to a limit.

    The pool of the standard library waits for all threads at exit, so a function that hangs would block the exit.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._count = 0
        self._abandoned = 0
        """The number of threads that run cancelled calls."""
        self._queue: deque[asyncio.Future[None]] = deque()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Return the result of a blocking call, or raise its exception. A cancelled call continues in its thread."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        while not self._idle and self._count >= _MOST_THREADS:
            await self._free(loop)
        if self._idle:
            jobs = self._idle.pop()
        else:
            jobs = SimpleQueue()
            Thread(target=self._work, args=(jobs,), name="evalloom-call", daemon=True).start()
            self._count += 1
        jobs.put(_Job(function, copy_context(), waiting, loop))
        try:
            result, error = await waiting
        except asyncio.CancelledError:
            self._abandoned += waiting.cancelled()
            raise
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the idle threads."""
        while self._idle:
            self._idle.pop().put(None)
            self._count -= 1

    async def _free(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until a thread is free. Raises CallError if all of them hang."""
        if self._abandoned >= _MOST_THREADS:
            message = f"{_MOST_THREADS} calls of the function have not returned. Make it return before its time-out"
            raise CallError("target_hangs", message)
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()
            raise

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = (job.variables.run(job.function), None)
            except BaseException as error:  # users' code may raise anything; `run` raises it again
                outcome = (None, error)
            try:
                job.loop.call_soon_threadsafe(self._finish, jobs, job.waiting, outcome)
            except RuntimeError:
                # The loop was closed while the function ran, so no future waits for it.
                self._count -= 1
                return
            del job, outcome

    def _finish(self, jobs: SimpleQueue[_Job | None], waiting: asyncio.Future[Any], outcome: Any) -> None:
        self._idle.append(jobs)
        if waiting.done():
            self._abandoned -= 1
        else:
            waiting.set_result(outcome)
        self._next()

    def _next(self) -> None:
        """Wake the first call in the queue."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
