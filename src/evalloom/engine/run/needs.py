"""Orders jobs by their dependencies: a job waits until the runs that it needs are scored (PIPE-14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

import msgspec
from msgspec import Struct

from evalloom.core.model import Run, Status
from evalloom.engine.run.jobs import Job, Jobs, SelectedCase

_MAX_WAITING = 10_000
"""The number of waiting jobs up to which more are read, while running jobs may still unblock one."""
_BLOCKING: dict[Status, str] = {
    "failed": "failed",
    "error": "met an error",
    "blocked": "was blocked",
    "skipped": "was skipped",
}

_Name = tuple[str, str]
"""A file, and the id of a case in it, or of a record with parameters that gives several cases."""
_Need = tuple[str, str, str, int]
"""A name with a profile and a repeat: the runs that a job waits for."""


class Needs(Struct, frozen=True):
    """The names that cases depend on, and the number of selected cases of each name."""

    exact: dict[_Name, int] = {}
    """The number of cases with this very id."""
    members: dict[_Name, int] = {}
    """The number of cases `id[name=value]` of a record with parameters; used only if no case has this very id."""
    duplicates: frozenset[int] = frozenset()
    """The numbers of cases whose id an earlier case has; dependencies mean the earlier one."""

    def __bool__(self) -> bool:
        return bool(self.exact)

    def count(self, name: _Name) -> int:
        """Return the number of selected cases of a name."""
        return self.exact.get(name, 0) or self.members.get(name, 0)

    def not_selected(self) -> list[str]:
        """Return the ids without a selected case; no job waits for these."""
        return [id for (file, id) in self.exact if not self.count((file, id))]

    def names_of(self, file: str, id: str, number: int) -> Iterator[_Name]:
        """Yield the names that a case has, among those that others depend on."""
        if number in self.duplicates:
            return
        if (file, id) in self.exact:
            yield file, id
        for base in _bases(id):
            if (file, base) in self.exact and not self.exact[file, base]:
                yield file, base


NO_NEEDS = Needs()


class NeedsCollector:
    """Collects the dependencies of cases in one pass. Memory grows with the cases that are added."""

    def __init__(self) -> None:
        self._dependents: list[tuple[SelectedCase, bool]] = []
        self._existing: set[_Name] = set()
        self._ids: Counter[_Name] = Counter()
        self._members: Counter[_Name] = Counter()
        self._duplicates: set[int] = set()

    def add(self, item: SelectedCase, is_selected: bool = True) -> None:
        """Add a case of the dataset, and say whether it is selected to run."""
        file, id = item.case.origin.file, item.case.id
        names = [(file, base) for base in _bases(id)]
        self._existing.update([(file, id), *names])
        if item.case.needs:
            self._dependents.append((item, is_selected))
        if is_selected and item.is_duplicate:
            self._duplicates.add(item.number)
        elif is_selected:
            self._ids[file, id] += 1
            self._members.update(names)

    @property
    def unknown(self) -> frozenset[_Name]:
        """The names that cases depend on though no case of their file has them."""
        needs = {(item.case.origin.file, id) for item, _ in self._dependents for id in item.case.needs}
        return frozenset(needs - self._existing)

    def result(self, is_unknown_error: bool = False) -> Needs:
        """Return the needs of the selected cases. A case with an error does not run, so it waits for nothing.

        With `is_unknown_error`, a case of a dataset that depends on an unknown name is such a case.
        """
        unknown = self.unknown if is_unknown_error else frozenset()
        exact: dict[_Name, int] = {}
        for item, is_selected in self._dependents:
            names = [(item.case.origin.file, id) for id in item.case.needs]
            is_invalid = item.error or (item.dialect and not unknown.isdisjoint(names))
            if is_selected and not is_invalid:
                exact.update((name, self._ids[name]) for name in names)
        if not exact:
            return NO_NEEDS
        members = {name: count for name, count in self._members.items() if name in exact}
        return Needs(exact, members, frozenset(self._duplicates))


def collect_needs(cases: Callable[[], Iterable[SelectedCase]]) -> Needs:
    """Collect the dependencies of cases."""
    collector = NeedsCollector()
    for item in cases():
        collector.add(item)
    return collector.result()


def _bases(id: str) -> Iterator[str]:
    """Yield the possible ids of the record that a case `id[name=value]` belongs to."""
    at = id.find("[")
    while at > 0:
        yield id[:at]
        at = id.find("[", at + 1)


class _State(Struct):
    """The number of unfinished runs of a need, and why it cannot be met, if so."""

    unfinished: int
    blocker: str = ""


class DependencyQueue:
    """Yields jobs in order, except that a job waits until its needs are met.

    A job that cannot run any more is returned with the reason in `blocked`. `wake` is called when a job may be ready
    again.
    """

    def __init__(self, jobs: Iterable[Job], needs: Needs = NO_NEEDS, wake: Callable[[], object] = lambda: None) -> None:
        self._source = jobs
        self._jobs = iter(jobs)
        self._needs = needs
        self._wake = wake
        self._admitted = 0
        self._ready: list[tuple[int, Job]] = []
        self._waiting_jobs: dict[int, tuple[Job, set[_Need]]] = {}
        self._waiters: dict[_Need, list[int]] = {}
        self._states: dict[_Need, _State] = {}
        self._unscored: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether there are jobs that are not ready yet."""
        return bool(self._waiting_jobs)

    def next_ready(self) -> Job | None:
        """Return the next job that may run; None if there is none, or none yet."""
        if not self._needs:
            return next(self._jobs, None)
        while not self._ready:
            if len(self._waiting_jobs) >= _MAX_WAITING and self._unscored:
                return None
            job = next(self._jobs, None)
            if job is not None:
                self._admit(job)
            elif self._waiting_jobs and not self._unscored:
                self._release_stuck()
            else:
                return None
        _, job = heappop(self._ready)
        self._unscored.add(job.key)
        return job

    def expect(self, run: Run) -> None:
        """Announce a run from an earlier batch that will be completed, so that jobs keep waiting for it."""
        if self._needs:
            self._unscored.add(run.key)

    def complete(self, run: Run, status: Status) -> None:
        """Note the status of a scored run, and release the jobs that waited for it."""
        if not self._needs:
            return
        self._unscored.discard(run.key)
        for name in self._needs.names_of(run.origin.file, run.case_id, run.number):
            need = (*name, run.profile, run.repeat)
            state = self._state(need)
            state.unfinished -= 1
            if status in _BLOCKING and not state.blocker:
                state.blocker = f"depends on {run.case_id!r}, which {_BLOCKING[status]}"
            if state.blocker or state.unfinished <= 0:
                self._resolve_need(need, state.blocker)
        if self._ready or not self._unscored:
            self._wake()

    def give_up(self) -> None:
        """Drop all jobs, because the runs that they wait for will not be scored."""
        self._jobs = iter(())
        self._waiting_jobs.clear()
        self._ready.clear()
        self._wake()

    def drop_profile(self, job: Job) -> None:
        """Drop the further jobs of the profile of a job that was not run; those that wait for it are among them."""
        name = job.profile.name
        if isinstance(self._source, Jobs):
            self._source.dropped.add(name)
        self._unscored.discard(job.key)
        self._waiting_jobs = {
            number: waiting for number, waiting in self._waiting_jobs.items() if waiting[0].profile.name != name
        }
        self._ready = [item for item in self._ready if item[1].profile.name != name]
        heapify(self._ready)

    def _state(self, need: _Need) -> _State:
        state = self._states.get(need)
        if state is None:
            state = self._states[need] = _State(self._needs.count(need[:2]))
        return state

    def _admit(self, job: Job) -> None:
        self._admitted += 1
        needs = () if job.error or job.skipped else job.case.needs
        states: dict[_Need, _State] = {}
        for id in needs:
            need = (job.case.origin.file, id, job.profile.name, job.repeat)
            states[need] = self._state(need)
        if blocker := next((state.blocker for state in states.values() if state.blocker), ""):
            heappush(self._ready, (self._admitted, _blocked(job, blocker)))
        elif pending := {need for need, state in states.items() if state.unfinished > 0}:
            self._waiting_jobs[self._admitted] = (job, pending)
            for need in pending:
                self._waiters.setdefault(need, []).append(self._admitted)
        else:
            heappush(self._ready, (self._admitted, job))

    def _resolve_need(self, need: _Need, blocker: str) -> None:
        for number in self._waiters.pop(need, ()):
            if number in self._waiting_jobs:
                pending = self._waiting_jobs[number][1]
                pending.discard(need)
                if blocker or not pending:
                    self._release(number, blocker)

    def _release(self, number: int, blocker: str = "") -> None:
        job, _ = self._waiting_jobs.pop(number)
        heappush(self._ready, (number, _blocked(job, blocker) if blocker else job))

    def _release_stuck(self) -> None:
        """Release jobs whose needs will never run; if there are none, break a cycle. Called when nothing is running."""
        waiting_by_need = {
            (*name, job.profile.name, job.repeat): number
            for number, (job, _) in self._waiting_jobs.items()
            for name in self._needs.names_of(job.case.origin.file, job.case.id, job.number)
        }
        free = [
            number for number, (_, pending) in self._waiting_jobs.items() if waiting_by_need.keys().isdisjoint(pending)
        ]
        for number in free:
            self._release(number)
        if not free:
            self._break_cycle(waiting_by_need)

    def _break_cycle(self, waiting_by_need: dict[_Need, int]) -> None:
        """Block one job of a cycle. The linter refuses files with cycles, but cases may come from Python."""
        number, visited = next(iter(self._waiting_jobs)), set[int]()
        while number not in visited:
            visited.add(number)
            number = next(
                waiting_by_need[need] for need in sorted(self._waiting_jobs[number][1]) if need in waiting_by_need
            )
        need = next(need for need in sorted(self._waiting_jobs[number][1]) if need in waiting_by_need)
        self._release(number, f"depends on {need[1]!r}, which waits for it in turn")


def _blocked(job: Job, reason: str) -> Job:
    return msgspec.structs.replace(job, blocked=reason)
