"""A pool of daemon threads for blocking functions, which does not delay the exit of the program."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.interrupt import Interrupted, interrupt, place_in, withdraw_interrupt
from evalloom.core.process_state import end_forked_child

_MOST_THREADS = 512

_cancelled: list[tuple[_Worker, _Job]] = []
"""Cancelled calls that may still run."""


def hanging_names() -> list[str]:
    """Return the names of the functions whose cancelled calls still run, once for each call."""
    _cancelled[:] = [(worker, job) for worker, job in _cancelled if worker.job is job]
    return [job.name for _, job in _cancelled]


class _Job(Struct, frozen=True):
    """A call, and the future that waits for it."""

    function: Callable[[], Any]
    variables: Variables
    waiting: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    name: str


class _Worker:
    """A thread that runs one job at a time, and can be interrupted while it does."""

    def __init__(self, finish: Callable[[_Worker, _Job, Any], None], lose: Callable[[], None]) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._finish = finish
        self._lose = lose
        self.job: _Job | None = None
        self._has_begun = False
        self._is_interrupted = False
        self._lock = Lock()
        self._process = os.getpid()
        self.thread = Thread(target=self._work, name="evalloom-call", daemon=True)
        self.thread.start()

    def start(self, job: _Job) -> None:
        self.job, self._has_begun, self._is_interrupted = job, False, False
        self.jobs.put(job)

    def interrupt(self, job: _Job) -> str:
        """Raise Interrupted in the job if it still runs; return the line that it has reached."""
        with self._lock:
            if self.job is not job or not self._has_begun:
                return ""
            place = place_in(sys._current_frames().get(self.thread.ident or 0))
            self._is_interrupted = True
            interrupt(self.thread)
            return place.where

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            outcome: tuple[Any, BaseException | None] = (None, Interrupted())
            try:
                self._has_begun = True
                try:
                    if not job.waiting.done():
                        outcome = (job.variables.run(job.function), None)
                except BaseException as error:  # users' code may raise anything; `run` raises it again
                    outcome = (None, error)
                end_forked_child(self._process)
                self._end_job()
            except Interrupted:
                # It came when the function had just returned. There is one interrupt per job at most.
                self._end_job()
            try:
                job.loop.call_soon_threadsafe(self._finish, self, job, outcome)
            except RuntimeError:
                # The loop was closed while the function ran, so no future waits for it.
                self._lose()
                return
            del job, outcome

    def _end_job(self) -> None:
        with self._lock:
            self.job = None
            if self._is_interrupted:
                withdraw_interrupt(self.thread)


class Threads:
    """Runs blocking calls in daemon threads, one for each call in flight, up to a limit.

    The pool of the standard library waits for all threads at exit, so a function that hangs would block the exit.
    """

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._count = 0
        self._abandoned = 0
        """The number of threads that run cancelled calls."""
        self._queue: deque[asyncio.Future[None]] = deque()

    async def run(self, function: Callable[[], Any], name: str = "the function", limit: float | None = None) -> Any:
        """Return the result of a blocking call, or raise its exception.

        A call that is cancelled, or takes longer than `limit` seconds, is interrupted; if it waits in C, it continues
        in its thread.
        """
        loop = asyncio.get_running_loop()
        while not self._idle and self._count >= _MOST_THREADS:
            await self._free(loop)
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker(self._finish, self._lose)
            self._count += 1
        job = _Job(function, copy_context(), loop.create_future(), loop, name)
        timer = loop.call_later(limit, _end_late, job) if limit is not None else None
        worker.start(job)
        try:
            result, error = await job.waiting
        except asyncio.CancelledError:
            if job.waiting.cancelled():
                self._give_up(worker, job)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(error, _Late):
            where = self._give_up(worker, job)
            raise CallError("timeout", f"no answer within {limit:g} s: {name}() still runs{where}")
        if error is not None:
            raise error
        return result

    def _give_up(self, worker: _Worker, job: _Job) -> str:
        self._abandoned += 1
        _cancelled.append((worker, job))
        return worker.interrupt(job)

    def close(self) -> None:
        """End the idle threads."""
        while self._idle:
            self._idle.pop().jobs.put(None)
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

    def _lose(self) -> None:
        self._count -= 1

    def _finish(self, worker: _Worker, job: _Job, outcome: Any) -> None:
        self._idle.append(worker)
        if job.waiting.done():
            self._abandoned -= 1
        else:
            job.waiting.set_result(outcome)
        self._next()

    def _next(self) -> None:
        """Wake the first call in the queue."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Late(Exception):
    """The time limit of a call is over."""


def _end_late(job: _Job) -> None:
    if not job.waiting.done():
        job.waiting.set_result((None, _Late()))
