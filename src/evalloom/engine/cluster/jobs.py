"""The jobs of a batch on a cluster: sent to workers in chunks, and ended by what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evalloom.core.errors import BatchStop, EvalloomError
from evalloom.core.model import Run, Scored, Verdict
from evalloom.engine.cluster import bundle, wire
from evalloom.engine.cluster.connection import Connection
from evalloom.engine.cluster.dispatch import MOST_DEATHS_ALONE, Dispatcher, Work, Worker
from evalloom.engine.cluster.tasks import Tasks
from evalloom.engine.cluster.wire import Control
from evalloom.engine.run import Job, run_of

_GATHER_S = 0.003
"""Jobs are collected for this long before they are sent."""
_MOST_BYTES = 4_000_000
Result = TypeVar("Result", Run, Scored)
_GONE = Verdict("scoring", "scoring", "output", "unscored", reason="each worker that scored it died [worker_lost]")


class Jobs:
    """Every job without a result, and scores whose run has not been logged yet."""

    def __init__(
        self,
        connection: Connection,
        dispatcher: Dispatcher,
        tasks: Tasks,
        base: Path,
        on_gone: Callable[[Worker], None],
    ) -> None:
        """`base` is where the bundle was packed; `on_gone` gets a worker that does not have the batch open any more."""
        self._connection = connection
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._base = base
        self._on_gone = on_gone
        self._works: dict[str, Work] = {}
        self._scored: dict[str, Scored] = {}
        self._failure: BaseException | None = None
        self._is_gathering = False

    async def run(self, work: Work) -> Run:
        result: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        work.run = result
        await self._add(work, result)
        return result.result()

    async def score(self, work: Work) -> Scored:
        result: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
        work.scored = result
        await self._add(work, result)
        return result.result()

    def pending_score(self, key: str) -> asyncio.Future[Scored] | None:
        """Return the score of a run that its worker is scoring."""
        work = self._works.get(key)
        return work.scored if work is not None else None

    def pop_score(self, key: str) -> Scored | None:
        """Return the score that came with a run."""
        return self._scored.pop(key, None)

    # -- out ------------------------------------------------------------------------------------------------------

    async def _add(self, work: Work, result: asyncio.Future[Any]) -> None:
        self.raise_failure()
        self._works[work.key] = work
        self._dispatcher.add(work)
        self.send_soon()
        try:
            await result
        except asyncio.CancelledError:
            self._forget(work)
            raise

    def send_soon(self) -> None:
        if not self._is_gathering:
            self._is_gathering = True
            asyncio.get_running_loop().call_later(_GATHER_S, self._send)

    def _send(self) -> None:
        self._is_gathering = False
        for worker, works in self._dispatcher.next_chunks():
            for chunk, payload in self._payloads(works):
                keys = [work.key for work in chunk]
                self._tasks.start(self._run_chunk(worker, payload, keys))
        behind = self._dispatcher.idle_and_behind()
        if behind is not None:
            behind.recalled = True
            recall = {behind.address: Control(recall=(behind.running - behind.slots + 1) // 2)}
            self._tasks.start(self._connection.announce([behind.address], recall))

    def _payloads(self, works: list[Work]) -> Iterable[tuple[list[Work], bytes]]:
        try:
            payload = bundle.pack_value([(work.key, work.body) for work in works], self._base)
        except EvalloomError as error:
            if len(works) == 1:
                self._fail(works[0], error)
                return
            payload = b""
        if payload and (len(payload) <= _MOST_BYTES or len(works) == 1):
            yield works, payload
            return
        middle = len(works) // 2
        yield from self._payloads(works[:middle])
        yield from self._payloads(works[middle:])

    async def _run_chunk(self, worker: Worker, payload: bytes, keys: list[str]) -> None:
        if await self._connection.run_chunk(worker.address, payload, keys):
            return
        # The child process is gone. What it took along is known by now, or it was not there when the chunk came.
        if any(key in worker.works for key in keys):
            self._on_gone(worker)

    # -- in -------------------------------------------------------------------------------------------------------

    def take(self, address: str, kind: str, key: str, content: Any) -> None:
        """Take what a worker reports of a job; a job that has ended needs no further result."""
        work = self._works.get(key)
        if work is None:
            return
        # Of a worker that was lost meanwhile only a run with its score counts: the score of another run would not fit.
        is_there = work.worker is not None and work.worker.address == address
        if not is_there and not (kind == "run" and content[1] is not None):
            return
        if kind == "run":
            self._take_run(work, *content)
        elif kind == "scored":
            future = work.scored
            self._forget(work)
            if future is not None and not future.done():
                future.set_result(_unpacked(content, Scored))
        elif kind == "stop":
            self._fail(work, wire.as_error(content))
        elif kind == "returned":
            if work.worker is not None:
                work.worker.recalled = False
            self._dispatcher.end(work)
            self._dispatcher.add(work)

    def _take_run(self, work: Work, run_content: Any, scored_content: Any) -> None:
        if work.run is None or work.run.done():
            return
        assert isinstance(work.body, Job)
        run = msgspec.structs.replace(_unpacked(run_content, Run), raw=work.body.case.raw)
        scored = scored_content and _unpacked(scored_content, Scored)
        future, work.run = work.run, None
        if scored is not None:
            self._scored[run.key] = scored
            self._forget(work)
        elif run.error:
            self._forget(work)
        else:
            work.body = (work.body.case, run)
            work.scored = asyncio.get_running_loop().create_future()
        future.set_result(run)

    # -- ends -----------------------------------------------------------------------------------------------------

    def stop(self, error: BaseException) -> None:
        """End the batch: nothing more is sent, and whoever waits gets the first error."""
        self._failure = self._failure or error
        waiting = list(self._dispatcher.drain())
        # What runs when a budget is spent may end; after another error nothing will.
        if not isinstance(error, BatchStop):
            waiting += list(self._works.values())
        for work in waiting:
            self._fail(work, self._failure)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def end_as_error(self, work: Work, why: str) -> None:
        """End a job that was alone each time its worker died."""
        times = f"{MOST_DEATHS_ALONE} workers died that ran it and nothing else"
        self._forget(work)
        if work.run is not None and not work.run.done():
            assert isinstance(work.body, Job)
            error = f"{times}; the last: {why} [worker_lost]"
            work.run.set_result(run_of(work.body, outcome="FAIL", error=error))
        elif work.scored is not None and not work.scored.done():
            work.scored.set_result(Scored(work.key, "unscored", verdicts=[_GONE]))

    def _forget(self, work: Work) -> None:
        self._works.pop(work.key, None)
        self._dispatcher.end(work)

    def _fail(self, work: Work, error: BaseException) -> None:
        self._forget(work)
        for future in (work.run, work.scored):
            if future is not None and not future.done():
                future.set_exception(error)
                # Of a score that nobody waits for yet, the error would be reported as never retrieved.
                future.exception()


def _unpacked(content: Any, kind: type[Result]) -> Result:
    """Return a value of the batch log; one that JSON cannot hold comes as it is."""
    return msgspec.json.decode(content, type=kind) if isinstance(content, bytes) else content
