"""How changes get to disk: many at a time, because that takes as long as one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from evalloom.core.errors import EvalloomError

Written = TypeVar("Written")
Work = Callable[[sqlite3.Connection], Written]
"""What changes the store within a transaction; it may be done again when another one of the same transaction fails."""


class InUse(Exception):
    """Somebody else changes the store, and has done so for longer than the connection waits."""


def transact(connection: sqlite3.Connection, works: list[Work[Any]]) -> list[Any]:
    """Does all of it in one transaction: on disk when this returns, or nothing of it where it raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as fault:
        raise InUse(str(fault)) from None
    try:
        results = [work(connection) for work in works]
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled it back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results


class Writer:
    """A thread that changes the store; what waits for it goes to disk together."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[Written]) -> Future[Written]:
        """Has some work done, after all that was submitted before."""
        job = _Job(work)
        self._waiting.put(job)
        return job.done

    def close(self) -> None:
        """Waits until everything is written."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = [self._waiting.get()]
            while not self._waiting.empty():
                taken.append(self._waiting.get())
            jobs = [job for job in taken if job is not None]
            is_open = len(jobs) == len(taken)
            if jobs and not self._write(jobs):
                # One of them fails: each for itself, so that it takes no other along.
                for job in jobs:
                    self._write([job])

    def _write(self, jobs: list[_Job]) -> bool:
        """Does jobs, and tells those who wait. False when several were tried in vain, and nobody was told."""
        try:
            results = transact(self._connect(), [job.work for job in jobs])
        except InUse as fault:
            # None of them can be done: to wait for each of them would take that many times as long.
            for job in jobs:
                job.done.set_exception(_cannot_write(fault))
            return True
        except Exception as fault:  # it belongs to whoever waits for the job
            if len(jobs) > 1:
                return False
            jobs[0].done.set_exception(_cannot_write(fault) if isinstance(fault, sqlite3.OperationalError) else fault)
            return True
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)
        return True


def _cannot_write(fault: Exception) -> EvalloomError:
    return EvalloomError("cannot_write", f"the store cannot be written: {fault}")


class _Job:
    """Work that waits to be done, and what will come of it."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.done: Future[Any] = Future()


class LoopWriter:
    """Small changes from an event loop: those of one turn of it go to disk together, without another thread.

    Handing work to a thread and back costs more than such a change. Where the store is in use, a thread waits instead.
    """

    def __init__(self, connection: sqlite3.Connection, writer: Writer) -> None:
        """The connection must give up at once where the store is in use, and belong to the loop's thread."""
        self._connection = connection
        self._writer = writer
        self._waiting: list[tuple[Work[Any], asyncio.Future[Any]]] = []

    def submit(self, work: Work[Written]) -> asyncio.Future[Written]:
        """Has some work done at the end of this turn of the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Written] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._write)
        self._waiting.append((work, done))
        return done

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            results = transact(self._connection, [work for work, _ in waiting])
        except Exception:  # the thread tells whoever it belongs to
            for work, done in waiting:
                self._leave_to_thread(work, done)
            return
        for (_, done), result in zip(waiting, results, strict=True):
            if not done.cancelled():
                done.set_result(result)

    def _leave_to_thread(self, work: Work[Any], done: asyncio.Future[Any]) -> None:
        def tell(written: asyncio.Future[Any]) -> None:
            if done.cancelled():
                return
            if (fault := written.exception()) is not None:
                done.set_exception(fault)
            else:
                done.set_result(written.result())

        asyncio.wrap_future(self._writer.submit(work)).add_done_callback(tell)
