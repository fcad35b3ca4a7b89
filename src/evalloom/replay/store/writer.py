"""Commits changes in batches, because a commit of many changes takes as long as a commit of one."""

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
Change = Callable[[sqlite3.Connection], Result]
"""A change to the store inside a transaction; it is retried if another change of the same transaction fails."""


class StoreBusy(Exception):
    """Another process held the write lock for longer than the busy timeout of the connection."""


def transact(connection: sqlite3.Connection, changes: list[Change[Any]]) -> list[Any]:
    """Apply all changes in one transaction: durable when this returns, rolled back when it raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        raise StoreBusy(str(error)) from None
    try:
        results = [change(connection) for change in changes]
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
        self._queue: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def submit(self, change: Change[Result]) -> Future[Result]:
        """Queue a change; changes are applied in the order of submission."""
        job = _PendingWrite(change)
        self._queue.put(job)
        return job.future

    def close(self) -> None:
        """Write all queued changes, then stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            queued = [self._queue.get()]
            while not self._queue.empty():
                queued.append(self._queue.get())
            jobs = [job for job in queued if job is not None]
            is_open = len(jobs) == len(queued)
            if jobs and not self._write(jobs):
                # One of the changes failed: apply each alone, so that the others succeed.
                for job in jobs:
                    self._write([job])

    def _write(self, jobs: list[_PendingWrite]) -> bool:
        """Apply jobs and resolve their futures; return False if a batch failed and no future was resolved."""
        try:
            results = transact(self._connect(), [job.change for job in jobs])
        except StoreBusy as error:
            # Retrying each job alone would wait for the lock once per job.
            for job in jobs:
                job.future.set_exception(_write_error(error))
            return True
        except Exception as error:  # the future raises it in the caller
            if len(jobs) > 1:
                return False
            jobs[0].future.set_exception(_write_error(error) if isinstance(error, sqlite3.OperationalError) else error)
            return True
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)
        return True


def _write_error(error: Exception) -> EvalloomError:
    return EvalloomError("cannot_write", f"the store cannot be written: {error}")


class _PendingWrite:
    """A queued change and the future of its result."""

    def __init__(self, change: Change[Any]) -> None:
        self.change = change
        self.future: Future[Any] = Future()


class LoopWriter:
    """Writes small changes from an event loop: commits all changes of one loop iteration together, without a thread.

    Handing a change to a thread and back costs more than the change itself. If the store is locked, the change goes to
    the writer thread, which waits for the lock.
    """

    def __init__(self, connection: sqlite3.Connection, writer: Writer) -> None:
        """`connection` must have no busy timeout and be used only by the thread of the loop."""
        self._connection = connection
        self._writer = writer
        self._queue: list[tuple[Change[Any], asyncio.Future[Any]]] = []

    def submit(self, change: Change[Result]) -> asyncio.Future[Result]:
        """Queue a change for the end of this loop iteration."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if not self._queue:
            loop.call_soon(self._write)
        self._queue.append((change, future))
        return future

    def _write(self) -> None:
        pending, self._queue = self._queue, []
        try:
            results = transact(self._connection, [change for change, _ in pending])
        except Exception:  # the writer thread retries and reports it
            for change, future in pending:
                self._hand_to_thread(change, future)
            return
        for (_, future), result in zip(pending, results, strict=True):
            if not future.cancelled():
                future.set_result(result)

    def _hand_to_thread(self, change: Change[Any], future: asyncio.Future[Any]) -> None:
        def copy_result(thread_future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            if (error := thread_future.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(thread_future.result())

        asyncio.wrap_future(self._writer.submit(change)).add_done_callback(copy_result)
