"""The workers that a batch has: they come and go, and each has its share of the limits and of the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from evalloom.core.errors import BudgetSpent, EvalloomError
from evalloom.core.text import pluralize
from evalloom.engine.cluster.connection import Connection
from evalloom.engine.cluster.dispatch import Dispatcher, Worker
from evalloom.engine.cluster.jobs import Jobs
from evalloom.engine.cluster.ledger import Ledger
from evalloom.engine.cluster.project import Project
from evalloom.engine.cluster.tasks import Tasks
from evalloom.engine.cluster.wire import Control, Hello, Order
from evalloom.engine.plan import Plan
from evalloom.llms.clients import Share
from evalloom.settings import llm_of

_POLL_S = 1.0
_HEARTBEAT_S = 5.0
_SILENT_S = 60.0
"""A worker that the scheduler has not heard for so long is lost, until it is heard again."""
_FIRST_WORKER_S = 120.0
_TOGETHER_S = 15.0
"""Workers that get ready wait so long for one another."""
_NO_WORKER_S = 300.0
"""A batch waits so long for a new worker when it has lost the last one."""
_UNUSABLE_S = 20.0
"""The same if those that are there cannot run it."""
_SETTLE_S = 60.0
_RETRY_OPEN_S = (1.0, 4.0)
"""A child process that did not start may have met a full disk or memory: it is tried again."""
RESUME = "Every finished run is in the log; add --resume to continue"


class WorkerPool:
    """Opens the batch on workers, shares its limits out to them, and takes their jobs back when they are lost."""

    def __init__(
        self,
        plan: Plan,
        project: Project,
        connection: Connection,
        dispatcher: Dispatcher,
        jobs: Jobs,
        tasks: Tasks,
        warn: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._project = project
        self._connection = connection
        self._dispatcher = dispatcher
        self._jobs = jobs
        self._tasks = tasks
        self._warn = warn
        self._ledger = Ledger(plan.options.max_cost, plan.options.max_tokens)
        self._order = Order(
            connection.id,
            connection.queue,
            project.bundle.digest,
            str(project.bundle.base),
            project.bundle.folder,
            project.portable,
            has_budget=self._ledger.is_limited,
        )
        self._most_workers = _most_workers(plan)
        self._known: set[str] = set()
        self._heard: dict[str, tuple[float, float]] = {}
        """The last sign of life of each worker by the clock of the scheduler, and when it was new here."""
        self._silent: set[str] = set()
        self._unusable: dict[str, str] = {}
        self._opening: dict[str, float] = {}
        """Workers that are getting ready, and since when."""
        self._settled: dict[str, int] = {}
        self._generation = 0
        self._sharing = asyncio.Lock()
        self._is_over = False
        self.changed = asyncio.Event()

    @property
    def most(self) -> int:
        """How many of the workers that there are the batch can use."""
        return min(self._most_workers, max(1, len(self._known)))

    async def open(self) -> None:
        """Follow the workers of the scheduler, and wait until the first are ready."""
        self._tasks.start(self._follow_workers())
        self._tasks.start(self._stay_in_touch())
        await self._await_workers()

    def take(self, address: str, kind: str, content: Any) -> None:
        """Take what a worker reports of itself."""
        if kind == "lease":
            self._ledger.report(address, *content)
            self._tasks.start(self._lease())
        elif kind == "settled":
            self._settled[address] = content
            self.changed.set()
        elif kind == "died" and (worker := self._dispatcher.workers.get(address)) is not None:
            self.lose(worker, *content)

    def lose(self, worker: Worker, in_flight: list[str], why: str) -> None:
        """Take back the jobs of a worker whose child process is gone, and open the batch there again."""
        if self._is_open(worker):
            self._take_back(worker, in_flight, why)
            self._open_more()

    # -- those that come and go -----------------------------------------------------------------------------------

    async def _await_workers(self) -> None:
        """Wait for the first workers; all that are there get ready before one begins."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _FIRST_WORKER_S
        while not any(worker.slots for worker in self._dispatcher.workers.values()):
            self._jobs.raise_failure()
            if self._known and not self._opening and len(self._unusable) >= len(self._known):
                reasons = "\n".join(dict.fromkeys(self._unusable.values()))
                raise EvalloomError("no_worker", f"no worker of the cluster can run this batch:\n{reasons}")
            if loop.time() > end:
                what = "its workers do not get ready" if self._known else "the scheduler has no worker"
                hint = f"Start some: dask worker {self._connection.address}"
                raise EvalloomError("no_worker", f"{what} within {_FIRST_WORKER_S:.0f} s. {hint}")
            self.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 0.5)

    async def _follow_workers(self) -> None:
        loop = asyncio.get_running_loop()
        had_worker = loop.time()
        while True:
            present = await self._connection.workers() - self._silent
            for address in list(self._dispatcher.workers):
                if address not in present:
                    is_silent = address in self._silent
                    why = f"it has not answered for {_SILENT_S:.0f} s" if is_silent else "the scheduler has lost it"
                    self._take_back(self._dispatcher.workers[address], None, why)
            for address in self._known - present:
                self._known.discard(address)
                self._unusable.pop(address, None)
            for address in sorted(present - self._known):
                self._known.add(address)
            self._open_more()
            if any(not worker.slots for worker in self._dispatcher.workers.values()) and not self._sharing.locked():
                self._tasks.start(self._share_out())
            if self._dispatcher.workers or self._opening:
                had_worker = loop.time()
            elif loop.time() - had_worker > (_UNUSABLE_S if self._known else _NO_WORKER_S):
                why = "\n".join(self._unusable.values()) or f"none has come for {_NO_WORKER_S / 60:.0f} minutes"
                raise EvalloomError("no_worker", f"no worker is left that can run this batch: {why}. {RESUME}")
            await self._connection.workers_changed(_POLL_S)

    def _open_more(self) -> None:
        """Open workers up to the number that the concurrency can be shared out to."""
        for address in sorted(self._known):
            if len(self._dispatcher.workers) + len(self._opening) >= self._most_workers:
                return
            if not any(address in seen for seen in (self._dispatcher.workers, self._opening, self._unusable)):
                self._opening[address] = asyncio.get_running_loop().time()
                self._tasks.start(self._open_worker(address))

    async def _open_worker(self, address: str) -> None:
        reason = await self._try_open(address)
        # Others do not wait for a worker that does not start.
        self._opening.pop(address, None)
        for pause in (*_RETRY_OPEN_S, 0.0):
            if not reason:
                break
            self._unusable[address] = f"worker {address}: {reason}"
            self._tasks.start(self._share_out())
            await self._connection.close_sessions([address])
            if len(self._unusable) < len(self._known):
                self._warn(f"worker {address} is left out: {reason}")
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
        opened = await self._connection.open_session(address, self._order, self._project.bundle)
        return opened if isinstance(opened, str) else self._difference(opened)

    def _difference(self, there: Hello) -> str:
        """Return what a worker has built differently; empty if it is the same."""
        here = self._project.hello
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

    def _take_back(self, worker: Worker, in_flight: list[str] | None, why: str) -> None:
        """Take back the jobs of a worker that died; its client did not get their results."""
        if self._dispatcher.workers.pop(worker.address, None) is None:
            return
        self._ledger.close(worker.address)
        number = len(worker.works)
        ended = list(self._dispatcher.lose(worker, in_flight))
        for work in ended:
            self._jobs.end_as_error(work, why)
        if number > len(ended):
            again = pluralize(number - len(ended), "job")
            self._warn(f"worker {worker.address}: {why}. Its {again} will run again [worker_lost]")
        self._tasks.start(self._share_out())
        self._jobs.send_soon()

    # -- limits and budget ----------------------------------------------------------------------------------------

    async def _share_out(self) -> None:
        """Give each worker its part of the limits; a new one begins when the others have confirmed theirs."""
        async with self._sharing:
            workers = list(self._dispatcher.workers.values())
            self.changed.set()
            if not workers or self._is_opening():
                return
            self._generation += 1
            generation, whole = self._generation, self._plan.options.concurrency
            shares = {worker.address: Share(index, len(workers)) for index, worker in enumerate(workers)}
            controls = {address: Control(share, generation) for address, share in shares.items()}
            # Not awaited: a frozen worker would keep the others waiting, and those that get it confirm it.
            self._tasks.start(self._announce(controls))
            loop = asyncio.get_running_loop()
            end = loop.time() + _SETTLE_S
            while loop.time() < end:
                there = [worker.address for worker in workers if self._is_open(worker)]
                if all(self._settled.get(address, 0) >= generation for address in there):
                    break
                self.changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), 1)
            for worker in workers:
                worker.slots = max(1, shares[worker.address].of(whole))
            self.changed.set()
        self._tasks.start(self._lease())
        self._jobs.send_soon()

    def _is_opening(self) -> bool:
        """Whether workers are getting ready that the others wait for, so that limits are shared out once."""
        now = asyncio.get_running_loop().time()
        return any(now - since < _TOGETHER_S for since in self._opening.values())

    async def _lease(self) -> None:
        if self._is_over:
            return
        if over := self._ledger.over:
            self._is_over = True
            self._tasks.start(self._announce({address: Control(over=over) for address in self._dispatcher.workers}))
            raise BudgetSpent(over)
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
            # Not awaited: a frozen worker would keep the others waiting until they take this client for lost.
            self._tasks.start(self._announce({}))
            self._note_silent(await self._connection.last_seen())

    def _note_silent(self, last_seen: dict[str, float]) -> None:
        now = asyncio.get_running_loop().time()
        for address, seen in last_seen.items():
            if self._heard.get(address, (0.0, 0.0))[0] != seen:
                self._heard[address] = seen, now
        self._heard = {address: heard for address, heard in self._heard.items() if address in last_seen}
        self._silent = {address for address, (_, since) in self._heard.items() if now - since > _SILENT_S}

    def _is_open(self, worker: Worker) -> bool:
        """Whether this is still the process at its address: another may have taken its place."""
        return self._dispatcher.workers.get(worker.address) is worker


def _most_workers(plan: Plan) -> int:
    """Return how many workers can have a part of the concurrency of the batch and of each of its llms."""
    most = plan.options.concurrency
    for name in filter(None, [*plan.llm_names(), plan.judge, plan.settings.embeddings]):
        with suppress(EvalloomError):
            most = min(most, llm_of(plan.settings, name).concurrency or most)
    return most
