"""Writes changes to disk in batches, because one commit takes as long as many."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from evalloom.core.errors import EvalloomError

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]
"""A change to the store inside a transaction; it is retried if another change of the same transaction fails."""


class StoreBusy(Exception):
    """Another process holds the write lock for longer than the busy timeout of the connection."""


def transact(connection: sqlite3.Connection, works: list[Work[Any]]) -> list[Any]:
    """Apply all changes in one transaction: durable when this returns, rolled back when it raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        raise StoreBusy(str(error)) from None
    try:
        results = [work(connection) for work in works]
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back already, for example when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results


class Writer:
    """A thread that writes to the store; queued changes are committed together."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._waiting: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[Result]) -> Future[Result]:
        """Queue a change; changes are applied in the order of submission."""
        job = _PendingWrite(work)
        self._waiting.put(job)
        return job.done

    def close(self) -> None:
        """Write all queued changes, then stop the thread."""
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
                # One change fails: apply each alone, so that the others succeed.
                for job in jobs:
                    self._write([job])

    def _write(self, jobs: list[_PendingWrite]) -> bool:
        """Apply jobs and resolve their futures; return False if a batch failed and no future was resolved."""
        try:
            results = transact(self._connect(), [job.work for job in jobs])
        except StoreBusy as error:
            # Retrying each job alone would wait for the lock once per job.
            for job in jobs:
                job.done.set_exception(_write_error(error))
            return True
        except Exception as error:  # raised again where the future is awaited
            if len(jobs) > 1:
                return False
            jobs[0].done.set_exception(_write_error(error) if isinstance(error, sqlite3.OperationalError) else error)
            return True
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)
        return True


def _write_error(error: Exception) -> EvalloomError:
    return EvalloomError("cannot_write", f"the store cannot be written: {error}")


class _PendingWrite:
    """A queued change and the future of its result."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.done: Future[Any] = Future()


class LoopWriter:
    """Writes small changes from an event loop: commits all changes of one loop iteration together, without a thread.

    Handing a change to a thread and back costs more than the change. If the store is locked, the writer thread waits.
    """

    def __init__(self, connection: sqlite3.Connection, writer: Writer) -> None:
        """`connection` must have no busy timeout and be used only by the thread of the loop."""
        self._connection = connection
        self._writer = writer
        self._waiting: list[tuple[Work[Any], asyncio.Future[Any]]] = []

    def submit(self, work: Work[Result]) -> asyncio.Future[Result]:
        """Queue a change for the end of this loop iteration."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._write)
        self._waiting.append((work, done))
        return done

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            results = transact(self._connection, [work for work, _ in waiting])
        except Exception:  # the writer thread retries and reports it
            for work, done in waiting:
                self._hand_to_thread(work, done)
            return
        for (_, done), result in zip(waiting, results, strict=True):
            if not done.cancelled():
                done.set_result(result)

    def _hand_to_thread(self, work: Work[Any], done: asyncio.Future[Any]) -> None:
        def copy_result(written: asyncio.Future[Any]) -> None:
            if done.cancelled():
                return
            if (error := written.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(written.result())

        asyncio.wrap_future(self._writer.submit(work)).add_done_callback(copy_result)
