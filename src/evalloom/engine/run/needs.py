"""Cases that wait for others: a job is held back until the runs that it needs are scored (PIPE-14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

import msgspec
from msgspec import Struct

from evalloom.core.model import Run, Status
from evalloom.engine.run.jobs import Job, SelectedCase

_MOST_HELD = 10_000
"""How many jobs are read ahead while others that are under way may still let one of them go."""
_BLOCKING: dict[Status, str] = {
    "failed": "failed",
    "error": "met an error",
    "blocked": "was blocked",
    "skipped": "was skipped",
}

_Name = tuple[str, str]
"""A file, and the id of a case in it or of a record that stands for several."""
_Need = tuple[str, str, str, int]
"""The runs that answer to a name, under one profile and in one repetition."""


class Needs(Struct, frozen=True):
    """The names that others depend on, and how many of the chosen cases answer to each."""

    exact: dict[_Name, int] = {}
    """By their own id."""
    members: dict[_Name, int] = {}
    """As cases of a record with parameters, `id[name=value]`; only where no case has the very id."""
    duplicates: frozenset[int] = frozenset()
    """The numbers of cases that nobody means by their id, since another had it before."""

    def __bool__(self) -> bool:
        return bool(self.exact)

    def count(self, name: _Name) -> int:
        return self.exact.get(name, 0) or self.members.get(name, 0)

    def not_chosen(self) -> list[str]:
        """The names that no chosen case answers to: nobody waits for these."""
        return [id for (file, id) in self.exact if not self.count((file, id))]

    def met_by(self, file: str, id: str, number: int) -> Iterator[_Name]:
        """The names that a case answers to."""
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
    """What may have been the id of the record that a case `id[name=value]` comes of."""
    at = id.find("[")
    while at > 0:
        yield id[:at]
        at = id.find("[", at + 1)


class _State(Struct):
    """How many runs a need still waits for, and the one that went wrong."""

    left: int
    bad: str = ""


class DependencyQueue:
    """Jobs in their order, except that one whose needs are not settled lets others go first.

    A job that cannot run any more is handed out with the reason in `blocked`. `wake` is called when there may be
    something ready again.
    """

    def __init__(self, jobs: Iterable[Job], needs: Needs = NO_NEEDS, wake: Callable[[], object] = lambda: None) -> None:
        self._jobs = iter(jobs)
        self._needs = needs
        self._wake = wake
        self._taken = 0
        self._ready: list[tuple[int, Job]] = []
        self._waiting_jobs: dict[int, tuple[Job, set[_Need]]] = {}
        self._waiters: dict[_Need, list[int]] = {}
        self._states: dict[_Need, _State] = {}
        self._unsettled: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether there are jobs that cannot be taken yet."""
        return bool(self._waiting_jobs)

    def next_ready(self) -> Job | None:
        """The next job that may run; None when there is none, or none yet."""
        if not self._needs:
            return next(self._jobs, None)
        while not self._ready:
            if len(self._waiting_jobs) >= _MOST_HELD and self._unsettled:
                return None
            job = next(self._jobs, None)
            if job is not None:
                self._admit(job)
            elif self._waiting_jobs and not self._unsettled:
                self._break_up()
            else:
                return None
        _, job = heappop(self._ready)
        self._unsettled.add(job.key)
        return job

    def expect(self, run: Run) -> None:
        """Says that a run from earlier is going to be settled, so that nobody gives it up."""
        if self._needs:
            self._unsettled.add(run.key)

    def complete(self, run: Run, status: Status) -> None:
        """Takes down what became of a run, and lets go those who waited for it."""
        if not self._needs:
            return
        self._unsettled.discard(run.key)
        for name in self._needs.met_by(run.origin.file, run.case_id, run.number):
            need = (*name, run.profile, run.repeat)
            state = self._state(need)
            state.left -= 1
            if status in _BLOCKING and not state.bad:
                state.bad = f"depends on {run.case_id!r}, which {_BLOCKING[status]}"
            if state.bad or state.left <= 0:
                self._resolve_need(need, state.bad)
        if self._ready or not self._unsettled:
            self._wake()

    def give_up(self) -> None:
        """Hands out nothing more: what would be waited for never comes."""
        self._jobs = iter(())
        self._waiting_jobs.clear()
        self._ready.clear()
        self._wake()

    def _state(self, need: _Need) -> _State:
        state = self._states.get(need)
        if state is None:
            state = self._states[need] = _State(self._needs.count(need[:2]))
        return state

    def _admit(self, job: Job) -> None:
        self._taken += 1
        needs = [] if job.error or job.skipped else _needs_of(job)
        states = {need: self._state(need) for need in needs}
        if bad := next((state.bad for state in states.values() if state.bad), ""):
            heappush(self._ready, (self._taken, _blocked(job, bad)))
        elif still := {need for need, state in states.items() if state.left > 0}:
            self._waiting_jobs[self._taken] = (job, still)
            for need in still:
                self._waiters.setdefault(need, []).append(self._taken)
        else:
            heappush(self._ready, (self._taken, job))

    def _resolve_need(self, need: _Need, bad: str) -> None:
        for number in self._waiters.pop(need, ()):
            if number in self._waiting_jobs:
                still = self._waiting_jobs[number][1]
                still.discard(need)
                if bad or not still:
                    self._release(number, bad)

    def _release(self, number: int, bad: str = "") -> None:
        job, _ = self._waiting_jobs.pop(number)
        heappush(self._ready, (number, _blocked(job, bad) if bad else job))

    def _break_up(self) -> None:
        """Nothing is under way, so those who wait for runs that are left out go on, and a cycle is cut."""
        holder = {
            (*name, job.profile.name, job.repeat): number
            for number, (job, _) in self._waiting_jobs.items()
            for name in self._needs.met_by(job.case.origin.file, job.case.id, job.number)
        }
        free = [number for number, (_, still) in self._waiting_jobs.items() if holder.keys().isdisjoint(still)]
        for number in free:
            self._release(number)
        if not free:
            self._cut(holder)

    def _cut(self, holder: dict[_Need, int]) -> None:
        """Blocks one job of a cycle; the linter refuses files that have one, but cases may come from elsewhere."""
        number, seen = next(iter(self._waiting_jobs)), set[int]()
        while number not in seen:
            seen.add(number)
            number = next(holder[need] for need in sorted(self._waiting_jobs[number][1]) if need in holder)
        need = next(need for need in sorted(self._waiting_jobs[number][1]) if need in holder)
        self._release(number, f"depends on {need[1]!r}, which waits for it in turn")


def _needs_of(job: Job) -> list[_Need]:
    return [(job.case.origin.file, need, job.profile.name, job.repeat) for need in job.case.needs]


def _blocked(job: Job, reason: str) -> Job:
    return msgspec.structs.replace(job, blocked=reason)
