"""The executor of `--executor dask`: sends jobs to the workers of a cluster, and takes what they send back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evalloom.batchlog.read import without_output
from evalloom.core.errors import BatchStop, BudgetSpent, EvalloomError
from evalloom.core.model import Case, Run, Scored, Verdict
from evalloom.core.text import pluralize
from evalloom.engine.cluster import bundle, wire
from evalloom.engine.cluster.connection import Connection, SchedulerLost
from evalloom.engine.cluster.dispatch import (
    AHEAD,
    AHEAD_PER_SLOT,
    MOST_APPETITE,
    MOST_DEATHS_ALONE,
    Dispatcher,
    Work,
    Worker,
)
from evalloom.engine.cluster.ledger import Ledger
from evalloom.engine.cluster.wire import Control, Hello, Order, Portable
from evalloom.engine.executor import Checks
from evalloom.engine.plan import Plan
from evalloom.engine.run import Job, run_of
from evalloom.engine.watch import watched_files
from evalloom.llms.clients import Share
from evalloom.settings import llm_of
from evalloom.settings import secrets as secrets_of
from evalloom.targets.base import NO_TARGET

_POLL_S = 1.0
_HEARTBEAT_S = 5.0
_GATHER_S = 0.003
"""Jobs are collected for this long before they are sent."""
_FIRST_WORKER_S = 120.0
_TOGETHER_S = 15.0
"""Workers that get ready wait so long for one another."""
_NO_WORKER_S = 300.0
"""A batch waits so long for a new worker when it has lost the last one."""
_UNUSABLE_S = 20.0
"""The same if those that are there cannot run it."""
_SETTLE_S = 60.0
_MOST_BYTES = 4_000_000
_RETRY_OPEN_S = (1.0, 4.0)
"""A child process that did not start may have met a full disk or memory: it is tried again."""
_RESUME = "Every finished run is in the log; add --resume to continue"
Result = TypeVar("Result", Run, Scored)
_GONE = Verdict("scoring", "scoring", "output", "unscored", reason="each worker that scored it died [worker_lost]")


class DaskExecutor:
    """Runs and scores on the workers of a Dask cluster."""

    def __init__(self, plan: Plan, warn: Callable[[str], None], checks: Checks | None = None) -> None:
        """`checks` are the user's own, with the folders of the files that name them; None for those of the plan."""
        self._plan = plan
        self._checks = ((plan.settings.folder, plan.checks),) if checks is None else checks
        self._warn = warn
        self._most_workers = _most_workers(plan)
        self._is_sparing = plan.question is not None
        self.concurrency = plan.options.concurrency
        self._dispatcher = Dispatcher(self._is_sparing)
        self._ledger = Ledger(plan.options.max_cost, plan.options.max_tokens)
        self._connection = Connection(plan.options.scheduler, plan.options.workers, plan.settings.folder, plan.home)
        self._works: dict[str, Work] = {}
        self._scored: dict[str, Scored] = {}
        self._unusable: dict[str, str] = {}
        self._opening: dict[str, float] = {}
        """Workers that are getting ready, and since when."""
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._settled: dict[str, int] = {}
        self._generation = 0
        self._sharing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_gathering = self._is_over = False
        self._said: set[str] = set()
        self._outages: dict[str, None] = {}

    # -- the interface of an executor ---------------------------------------------------------------------

    async def open(self) -> None:
        """Pack the project, connect, and wait until workers are ready."""
        plan = self._plan
        self._pack(plan)
        await self._connection.open()
        self._order = Order(
            self._connection.id,
            self._connection.queue,
            self._bundle.digest,
            str(self._bundle.base),
            self._bundle.folder,
            self._portable,
            has_budget=self._ledger.is_limited,
        )
        for work in (self._receive(), self._follow_workers(), self._stay_in_touch()):
            self._start(work)
        await self._await_workers()
        most = min(self._most_workers, max(1, len(self._known)))
        ahead = MOST_APPETITE * max(AHEAD * most, AHEAD_PER_SLOT * self.concurrency)
        self.concurrency += most if self._is_sparing else ahead

    def run(self, job: Job) -> Awaitable[Run]:
        if job.error:
            return _immediately(run_of(job, outcome="FAIL", error=job.error))
        if job.skipped or job.blocked:
            return _immediately(run_of(job))
        work = Work(job.key, job)
        work.run = asyncio.get_running_loop().create_future()
        return self._add(work, work.run)

    def score_now(self, case: Case, run: Run) -> Scored | None:
        if run.error or run.skipped or run.blocked:
            return without_output(run)
        return self._scored.pop(run.key, None)

    def score(self, case: Case, run: Run) -> Awaitable[Scored]:
        work = self._works.get(run.key)
        if work is not None and work.scored is not None:
            return work.scored
        work = Work(run.key, (case, run))
        work.scored = asyncio.get_running_loop().create_future()
        return self._add(work, work.scored)

    def in_outage(self) -> list[str]:
        return list(self._outages)

    async def close(self) -> Iterable[str]:
        notes = await self._connection.close_sessions(list(self._dispatcher.workers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()
        return dict.fromkeys(notes)

    # -- preparing ------------------------------------------------------------------------------------------

    def _pack(self, plan: Plan) -> None:
        target, settings = plan.target, plan.settings
        if target.rebuild is None and target is not NO_TARGET:
            raise bundle.not_portable(f"the target {target.name} cannot be built on another machine")
        root = settings.folder if settings.path else next((path.parent for path in target.watch), Path())
        secrets = [*secrets_of(settings), *target.secrets]
        # A config that names prompts and tests is a dataset, and the target is read from it.
        own = {path.absolute() for path in target.watch}
        datasets = [source.path for source in plan.sources if source.path and source.path.absolute() not in own]
        watched = [path for path in watched_files(plan) if path not in datasets]
        self._bundle = bundle.pack([root, *target.folders], watched, datasets, secrets)
        portable = Portable(
            msgspec.structs.replace(settings, written=None, datasets=[], gates=[]),
            # Limits of the batch are kept here, and the output is written here.
            msgspec.structs.replace(plan.options, max_cost=None, max_tokens=None, max_time=None, output=[]),
            plan.profiles,
            target.rebuild,
            self._checks,
            plan.judge,
        )
        self._portable = bundle.pack_value(portable, self._bundle.base)
        if any(secret.encode() in self._portable for secret in secrets):
            hint = "Keys stay on this machine: name the variable of a key in evalloom.yaml, not its value"
            raise EvalloomError("key_in_bundle", f"the settings or the target contain the value of a key. {hint}", 2)
        self._hello = Hello(target.digest, plan.profile_digests())

    async def _await_workers(self) -> None:
        """Wait for the first workers; all that are there get ready before one begins."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _FIRST_WORKER_S
        while not any(worker.slots for worker in self._dispatcher.workers.values()):
            self._raise_failure()
            if self._known and not self._opening and len(self._unusable) >= len(self._known):
                reasons = "\n".join(dict.fromkeys(self._unusable.values()))
                raise EvalloomError("no_worker", f"no worker of the cluster can run this batch:\n{reasons}")
            if loop.time() > end:
                what = "its workers do not get ready" if self._known else "the scheduler has no worker"
                hint = f"Start some: dask worker {self._connection.address}"
                raise EvalloomError("no_worker", f"{what} within {_FIRST_WORKER_S:.0f} s. {hint}")
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 0.5)

    # -- jobs out, results in -----------------------------------------------------------------------------------

    async def _add(self, work: Work, result: asyncio.Future[Any]) -> Any:
        self._raise_failure()
        self._works[work.key] = work
        self._dispatcher.add(work)
        self._send_soon()
        try:
            return await result
        except asyncio.CancelledError:
            self._forget(work)
            raise

    def _send_soon(self) -> None:
        if not self._is_gathering:
            self._is_gathering = True
            asyncio.get_running_loop().call_later(_GATHER_S, self._send)

    def _send(self) -> None:
        self._is_gathering = False
        for worker, works in self._dispatcher.next_chunks():
            for chunk, payload in self._payloads(works):
                keys = [work.key for work in chunk]
                self._start(self._run_chunk(worker, payload, keys))
        behind = self._dispatcher.idle_and_behind()
        if behind is not None:
            behind.recalled = True
            self._start(self._announce({behind.address: Control(recall=(behind.running - behind.slots + 1) // 2)}))

    def _payloads(self, works: list[Work]) -> Iterable[tuple[list[Work], bytes]]:
        try:
            payload = bundle.pack_value([(work.key, work.body) for work in works], self._bundle.base)
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
        if self._is_open(worker) and any(key in worker.works for key in keys):
            self._lose(worker, [], "its process was gone")
            self._open_more()

    async def _receive(self) -> None:
        while True:
            for data in await self._connection.next_results():
                address, events = wire.decode(data)
                for event in wire.decode(events):
                    self._take(address, *event)
            self._send_soon()

    def _take(self, address: str, kind: str, key: str, content: Any) -> None:
        work = self._works.get(key) if key else None
        if work is not None:
            self._take_result(work, kind, content)
        elif kind == "lease":
            self._ledger.report(address, *content)
            self._start(self._lease())
        elif kind == "settled":
            self._settled[address] = content
            self._changed.set()
        elif kind == "warn":
            self._warn_once(content)
        elif kind == "outage":
            self._outages.update(dict.fromkeys(content))
        elif kind == "died" and (worker := self._dispatcher.workers.get(address)) is not None:
            in_flight, why = content
            self._lose(worker, in_flight, why)
            self._open_more()

    def _take_result(self, work: Work, kind: str, content: Any) -> None:
        if kind == "run":
            if work.run is None or work.run.done():
                return
            assert isinstance(work.body, Job)
            run = msgspec.structs.replace(_unpacked(content[0], Run), raw=work.body.case.raw)
            scored = content[1] and _unpacked(content[1], Scored)
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
        elif kind == "scored":
            future_score = work.scored
            self._forget(work)
            if future_score is not None and not future_score.done():
                future_score.set_result(_unpacked(content, Scored))
        elif kind == "stop":
            self._fail(work, wire.as_error(content))
        elif kind == "returned":
            if work.worker is not None:
                work.worker.recalled = False
            self._dispatcher.end(work)
            self._dispatcher.add(work)

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

    # -- workers that come and go ------------------------------------------------------------------------------

    async def _follow_workers(self) -> None:
        loop = asyncio.get_running_loop()
        had_worker = loop.time()
        while True:
            present = await self._connection.workers()
            for address in list(self._dispatcher.workers):
                if address not in present:
                    self._lose(self._dispatcher.workers[address], None, "the scheduler has lost it")
            for address in self._known - present:
                self._known.discard(address)
                self._unusable.pop(address, None)
            for address in sorted(present - self._known):
                self._known.add(address)
            self._open_more()
            if any(not worker.slots for worker in self._dispatcher.workers.values()) and not self._sharing.locked():
                self._start(self._share_out())
            if self._dispatcher.workers or self._opening:
                had_worker = loop.time()
            elif loop.time() - had_worker > (_UNUSABLE_S if self._known else _NO_WORKER_S):
                why = "\n".join(self._unusable.values()) or f"none has come for {_NO_WORKER_S / 60:.0f} minutes"
                self._stop_with(
                    EvalloomError("no_worker", f"no worker is left that can run this batch: {why}. {_RESUME}")
                )
            await self._connection.workers_changed(_POLL_S)

    def _open_more(self) -> None:
        """Open workers up to the number that the concurrency can be shared out to."""
        for address in sorted(self._known):
            if len(self._dispatcher.workers) + len(self._opening) >= self._most_workers:
                return
            if not any(address in seen for seen in (self._dispatcher.workers, self._opening, self._unusable)):
                self._opening[address] = asyncio.get_running_loop().time()
                self._start(self._open_worker(address))

    async def _open_worker(self, address: str) -> None:
        reason = await self._try_open(address)
        # Others do not wait for a worker that does not start.
        self._opening.pop(address, None)
        for pause in (*_RETRY_OPEN_S, 0.0):
            if not reason:
                break
            self._unusable[address] = f"worker {address}: {reason}"
            self._start(self._share_out())
            await self._connection.close_sessions([address])
            if len(self._unusable) < len(self._known):
                self._warn_once(f"worker {address} is left out: {reason}")
            if not pause or "[worker_failed]" not in reason:
                break
            await asyncio.sleep(pause)
            reason = await self._try_open(address)
        if address in self._known and not reason:
            self._unusable.pop(address, None)
            self._dispatcher.workers[address] = Worker(address)
            if self._ledger.is_limited:
                self._ledger.open(address)
        await self._share_out()

    async def _try_open(self, address: str) -> str:
        """Open the batch on a worker; return why that is not possible, or nothing."""
        opened = await self._connection.open_session(address, self._order, self._bundle)
        return opened if isinstance(opened, str) else self._difference(opened)

    def _difference(self, there: Hello) -> str:
        """Return what a worker has built differently; empty if it is the same."""
        here = self._hello
        if there.target_digest != here.target_digest:
            files = f"{self._plan.target.name} is {here.target_digest[:8]} here and {there.target_digest[:8]} there"
            hint = "A file or a package that it is made of differs. Install the same packages on the worker"
            return f"{files}. {hint} [worker_differs]"
        for name, digest in here.profile_digests.items():
            if there.profile_digests.get(name) != digest:
                shown = f"profile {name!r} is {digest[:8]} here and {there.profile_digests.get(name, '')[:8]} there"
                hint = "A variable that its llm is made from differs, such as OPENAI_BASE_URL. Set it on the worker"
                return f"{shown}. {hint} [worker_differs]"
        return ""

    async def _share_out(self) -> None:
        """Give each worker its part of the limits; a new one begins when the others have confirmed theirs."""
        async with self._sharing:
            workers = list(self._dispatcher.workers.values())
            self._changed.set()
            if not workers or self._is_opening():
                return
            self._generation += 1
            generation, whole = self._generation, self._plan.options.concurrency
            shares = {worker.address: Share(index, len(workers)) for index, worker in enumerate(workers)}
            controls = {address: Control(share, generation) for address, share in shares.items()}
            await self._announce(controls)
            loop = asyncio.get_running_loop()
            end = loop.time() + _SETTLE_S
            while loop.time() < end:
                there = [worker.address for worker in workers if self._is_open(worker)]
                if all(self._settled.get(address, 0) >= generation for address in there):
                    break
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 1)
            for worker in workers:
                worker.slots = max(1, shares[worker.address].of(whole))
            self._changed.set()
        self._start(self._lease())
        self._send_soon()

    def _is_opening(self) -> bool:
        """Whether workers are getting ready that the others wait for, so that limits are shared out once."""
        now = asyncio.get_running_loop().time()
        return any(now - since < _TOGETHER_S for since in self._opening.values())

    def _is_open(self, worker: Worker) -> bool:
        """Whether this is still the process at its address: another may have taken its place."""
        return self._dispatcher.workers.get(worker.address) is worker

    def _lose(self, worker: Worker, in_flight: list[str] | None, why: str) -> None:
        """Take back the jobs of a worker that died; its client did not get their results."""
        if self._dispatcher.workers.pop(worker.address, None) is None:
            return
        self._ledger.close(worker.address)
        number = len(worker.works)
        ended = list(self._dispatcher.lose(worker, in_flight))
        for work in ended:
            self._end_as_error(work, why)
        if number > len(ended):
            again = pluralize(number - len(ended), "job")
            self._warn(f"worker {worker.address}: {why}. Its {again} will run again [worker_lost]")
        self._start(self._share_out())
        self._send_soon()

    def _end_as_error(self, work: Work, why: str) -> None:
        """End a job that was alone each time its worker died."""
        times = f"{MOST_DEATHS_ALONE} workers died that ran it and nothing else"
        self._forget(work)
        if work.run is not None and not work.run.done():
            assert isinstance(work.body, Job)
            error = f"{times}; the last: {why} [worker_lost]"
            work.run.set_result(run_of(work.body, outcome="FAIL", error=error))
        elif work.scored is not None and not work.scored.done():
            work.scored.set_result(Scored(work.key, "unscored", verdicts=[_GONE]))

    # -- limits and budget ----------------------------------------------------------------------------------------

    async def _lease(self) -> None:
        if self._is_over:
            return
        if over := self._ledger.over:
            self._is_over = True
            self._stop_with(BudgetSpent(over))
            await self._announce({address: Control(over=over) for address in self._dispatcher.workers})
            return
        leases = self._ledger.leases()
        if leases:
            await self._announce(
                {address: Control(lease=lease, generation=number) for address, (number, lease) in leases.items()}
            )

    async def _announce(self, controls: dict[str, Control]) -> None:
        await self._connection.announce(list(self._dispatcher.workers), controls)

    async def _stay_in_touch(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await self._announce({})

    # -- ends -----------------------------------------------------------------------------------------------------

    def _start(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop_with(error)

    def _stop_with(self, error: BaseException) -> None:
        """End the batch: nothing more is sent, and whoever waits gets the error."""
        if isinstance(error, SchedulerLost):
            error = EvalloomError("scheduler_lost", f"{error}. {_RESUME}")
        is_first, self._failure = self._failure is None, self._failure or error
        waiting = list(self._dispatcher.drain())
        # What runs when a budget is spent may end; after another error nothing will.
        if not isinstance(error, BatchStop):
            waiting += list(self._works.values())
        for work in waiting:
            self._fail(work, self._failure)
        if is_first:
            self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _warn_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._warn(message)


def _unpacked(content: Any, kind: type[Result]) -> Result:
    """Return a value of the batch log; one that JSON cannot hold comes as it is."""
    return msgspec.json.decode(content, type=kind) if isinstance(content, bytes) else content


async def _immediately(run: Run) -> Run:
    return run


def _most_workers(plan: Plan) -> int:
    """Return how many workers can have a part of the concurrency of the batch and of each of its llms."""
    most = plan.options.concurrency
    for name in filter(None, [*plan.llm_names(), plan.judge, plan.settings.embeddings]):
        with suppress(EvalloomError):
            most = min(most, llm_of(plan.settings, name).concurrency or most)
    return most
