"""The executor of `--executor dask`: runs and scores jobs on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from evalloom.batchlog.read import without_output
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Run, Scored
from evalloom.engine.cluster import project, wire
from evalloom.engine.cluster.connection import Connection, SchedulerLost
from evalloom.engine.cluster.dispatch import AHEAD, AHEAD_PER_SLOT, MOST_APPETITE, Dispatcher, Work
from evalloom.engine.cluster.jobs import Jobs
from evalloom.engine.cluster.pool import RESUME, WorkerPool
from evalloom.engine.cluster.tasks import Tasks
from evalloom.engine.executor import Checks
from evalloom.engine.plan import Plan
from evalloom.engine.run import Job, run_of


class DaskExecutor:
    """Runs and scores on the workers of a Dask cluster."""

    def __init__(self, plan: Plan, warn: Callable[[str], None], checks: Checks | None = None) -> None:
        """`checks` are the user's own, with the folders of the files that name them; None for those of the plan."""
        self._plan = plan
        self._checks = ((plan.settings.folder, plan.checks),) if checks is None else checks
        self._warn = warn
        self._is_sparing = plan.question is not None
        self.concurrency = plan.options.concurrency
        self._dispatcher = Dispatcher(self._is_sparing)
        self._connection = Connection(plan.options.scheduler, plan.options.workers, plan.settings.folder, plan.home)
        self._tasks = Tasks(self._stop_with)
        self._said: set[str] = set()
        self._outages: dict[str, None] = {}

    async def open(self) -> None:
        """Pack the project, connect, and wait until workers are ready."""
        packed = project.pack(self._plan, self._checks)
        await self._connection.open()
        base = packed.bundle.base
        self._jobs = Jobs(
            self._connection,
            self._dispatcher,
            self._tasks,
            base,
            lambda worker: self._pool.lose(worker, [], "its process was gone"),
        )
        self._pool = WorkerPool(
            self._plan, packed, self._connection, self._dispatcher, self._jobs, self._tasks, self._warn_once
        )
        self._tasks.start(self._receive())
        await self._pool.open()
        most = self._pool.most
        ahead = MOST_APPETITE * max(AHEAD * most, AHEAD_PER_SLOT * self.concurrency)
        self.concurrency += most if self._is_sparing else ahead

    def run(self, job: Job) -> Awaitable[Run]:
        if job.error:
            return _immediately(run_of(job, outcome="FAIL", error=job.error))
        if job.skipped or job.blocked:
            return _immediately(run_of(job))
        return self._jobs.run(Work(job.key, job))

    def score_now(self, case: Case, run: Run) -> Scored | None:
        if run.error or run.skipped or run.blocked:
            return without_output(run)
        return self._jobs.pop_score(run.key)

    def score(self, case: Case, run: Run) -> Awaitable[Scored]:
        return self._jobs.pending_score(run.key) or self._jobs.score(Work(run.key, (case, run)))

    def in_outage(self) -> list[str]:
        return list(self._outages)

    async def close(self) -> Iterable[str]:
        notes = await self._connection.close_sessions(list(self._dispatcher.workers))
        await self._tasks.close()
        await self._connection.close()
        return dict.fromkeys(notes)

    async def _receive(self) -> None:
        while True:
            for data in await self._connection.next_results():
                address, events = wire.decode(data)
                for event in wire.decode(events):
                    self._take(address, *event)
            self._jobs.send_soon()

    def _take(self, address: str, kind: str, key: str, content: object) -> None:
        if key:
            self._jobs.take(address, kind, key, content)
        elif kind == "warn":
            self._warn_once(str(content))
        elif kind == "outage" and isinstance(content, list):
            self._outages.update(dict.fromkeys(content))
        else:
            self._pool.take(address, kind, content)

    def _stop_with(self, error: BaseException) -> None:
        """End the batch with an error."""
        if isinstance(error, SchedulerLost):
            error = EvalloomError("scheduler_lost", f"{error}. {RESUME}")
        self._jobs.stop(error)
        self._pool.changed.set()

    def _warn_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._warn(message)


async def _immediately(run: Run) -> Run:
    return run
