"""Threads for functions that block: reused, and never in the way of the program's end."""

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
    """A call to make, and who waits for it."""

    function: Callable[[], Any]
    variables: Variables
    waiting: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Threads:
    """Runs blocking calls, each in a daemon thread: as many as there are calls in flight, up to a limit.

    The pool of the standard library waits at exit for every thread, so one function that hangs would keep us from
    ending.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._count = 0
        self._given_up = 0
        """How many threads are at work on calls that nobody waits for any more."""
        self._queue: deque[asyncio.Future[None]] = deque()

    async def run(self, function: Callable[[], Any]) -> Any:
        """The result of a blocking call; what it raises is raised here. A cancelled call goes on unheard."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        while not self._idle and self._count >= _MOST_THREADS:
            await self._free(loop)
        jobs = self._idle.pop() if self._idle else self._start()
        jobs.put(_Job(function, copy_context(), waiting, loop))
        try:
            result, fault = await waiting
        except asyncio.CancelledError:
            self._given_up += waiting.cancelled()
            raise
        if fault is not None:
            raise fault
        return result

    def close(self) -> None:
        """Ends the threads that have nothing to do."""
        while self._idle:
            self._idle.pop().put(None)
            self._count -= 1

    async def _free(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits until a thread is free, unless all of them hang."""
        if self._given_up >= _MOST_THREADS:
            message = f"{_MOST_THREADS} calls of the function have not come back. Let it end before its time-out"
            raise CallError("target_hangs", message)
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()
            raise

    def _start(self) -> SimpleQueue[_Job | None]:
        jobs: SimpleQueue[_Job | None] = SimpleQueue()
        Thread(target=self._work, args=(jobs,), name="evalloom-call", daemon=True).start()
        self._count += 1
        return jobs

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            outcome = _call(job)
            try:
                job.loop.call_soon_threadsafe(self._finish, jobs, job.waiting, outcome)
            except RuntimeError:
                # The loop was closed while the function hung: nobody waits any more.
                self._count -= 1
                return
            del job, outcome

    def _finish(self, jobs: SimpleQueue[_Job | None], waiting: asyncio.Future[Any], outcome: Any) -> None:
        self._idle.append(jobs)
        if waiting.done():
            self._given_up -= 1
        else:
            waiting.set_result(outcome)
        self._next()

    def _next(self) -> None:
        """Tells the first in the queue that a thread is free."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def _call(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.variables.run(job.function), None
    except BaseException as fault:  # users' code: whatever it raises belongs to who waits for it
        return None, fault
