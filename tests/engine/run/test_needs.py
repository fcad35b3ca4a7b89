"""Cases that wait for others: none begins too soon, none is forgotten, and exactly those are blocked that must be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import BudgetSpent
from evalloom.core.model import Case, Origin, Profile, Run, Status
from evalloom.engine.run import (
    DependencyQueue,
    Job,
    Jobs,
    Keys,
    Needs,
    SelectedCase,
    Slots,
    collect_needs,
    execute,
    numbered,
    run_of,
)

pytestmark = pytest.mark.req("PIPE-14")
PROFILE = Profile("p")
Graph = dict[str, tuple[str, ...]]


def cases_of(graph: Graph) -> list[Case]:
    return [Case(id, {}, needs=needs) for id, needs in graph.items()]


def jobs_of(cases: list[Case], repeats: int = 1, profiles: tuple[Profile, ...] = (PROFILE,)) -> Iterator[Job]:
    keys = Keys("t", {profile.name: "" for profile in profiles})
    return iter(Jobs(numbered(map(SelectedCase, cases)), profiles, repeats, keys))


def needs_of(cases: list[Case]) -> Needs:
    return collect_needs(lambda: numbered(map(SelectedCase, cases)))


class Batch:
    """Runs cases, scores them a little later, and takes down what happened in which order."""

    def __init__(self, failing: set[str], slots: int, patience: int = 0) -> None:
        self.slots = Slots(slots)
        self.failing = failing
        self.patience = patience
        self.begun: list[str] = []
        self.statuses: dict[str, Status] = {}
        self.reasons: dict[str, str] = {}

    async def run(self, cases: list[Case]) -> None:
        self.cases = {case.id: case for case in cases}
        queue = DependencyQueue(jobs_of(cases), needs_of(cases), self.slots.wake.set)
        scoring = []
        async for job, run in execute(queue, self.one, self.slots, asyncio.Event()):
            scoring.append(asyncio.create_task(self.score(queue, job, run)))
        await asyncio.gather(*scoring)

    async def one(self, job: Job) -> Run:
        if job.blocked:
            return run_of(job)
        assert self.statuses.keys() >= {*job.case.needs} & self.cases.keys(), "begun too soon"
        self.begun.append(job.case.id)
        await asyncio.sleep(0)
        return run_of(job)

    async def score(self, queue: DependencyQueue, job: Job, run: Run) -> None:
        for _ in range(self.patience):
            await asyncio.sleep(0)
        assert job.case.id not in self.statuses, "ended twice"
        status: Status = "blocked" if run.blocked else "failed" if job.case.id in self.failing else "passed"
        self.statuses[job.case.id] = status
        self.reasons[job.case.id] = run.blocked
        queue.complete(run, status)


@st.composite
def acyclic(draw: st.DrawFn) -> Graph:
    """A graph without cycles, in an order that has nothing to do with it."""
    size = draw(st.integers(1, 12))
    edges = {f"c{node}": draw(st.sets(st.integers(0, node - 1))) if node else set() for node in range(size)}
    order = draw(st.permutations(list(edges)))
    return {id: tuple(f"c{need}" for need in sorted(edges[id])) for id in order}


def descendants(graph: Graph, failing: set[str]) -> set[str]:
    found: set[str] = set()
    while more := {id for id, needs in graph.items() if id not in found and {*needs} & (failing | found)}:
        found |= more
    return found


@given(acyclic(), st.sets(st.integers(0, 11)), st.integers(1, 4), st.integers(0, 3))
def test_whatever_depends_on_what(graph: Graph, failing: set[int], slots: int, patience: int) -> None:
    """Every case ends once, none begins before its needs are settled, and only those behind a failure are blocked."""
    batch = Batch({f"c{node}" for node in failing}, slots, patience)
    asyncio.run(batch.run(cases_of(graph)))
    assert batch.statuses.keys() == graph.keys()
    blocked = {id for id, status in batch.statuses.items() if status == "blocked"}
    assert blocked == descendants(graph, {id for id in batch.failing if batch.statuses.get(id) == "failed"})
    assert sorted(batch.begun) == sorted(graph.keys() - blocked)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdefx")).map(tuple)), st.integers(1, 3))
def test_a_cycle_holds_nobody_up_for_ever(graph: Graph, slots: int) -> None:
    batch = Batch(set(), slots)
    asyncio.run(batch.run(cases_of(graph)))
    waiting = dict(graph)
    while free := [id for id, needs in waiting.items() if not {*needs} & waiting.keys()]:
        for id in free:
            del waiting[id]
    assert {id for id, status in batch.statuses.items() if status == "blocked"} == waiting.keys()


def test_a_cycle_says_who_waits_for_whom() -> None:
    batch = Batch(set(), 2)
    asyncio.run(batch.run(cases_of({"c": ("a",), "a": ("b",), "b": ("a",)})))
    assert batch.reasons == {
        "a": "depends on 'b', which waits for it in turn",
        "b": "depends on 'a', which was blocked",
        "c": "depends on 'a', which was blocked",
    }


def test_the_order_of_the_file_is_kept_where_nobody_waits() -> None:
    cases = cases_of({"a": (), "b": ("d",), "c": ("b",), "d": (), "e": (), "f": ()})
    queue, begun = DependencyQueue(jobs_of(cases), needs_of(cases)), []
    while (job := queue.next_ready()) is not None:
        begun.append(job.case.id)
        queue.complete(run_of(job), "passed")
    assert begun == ["a", "d", "b", "c", "e", "f"]


def test_the_id_of_a_record_with_parameters_means_all_its_cases() -> None:
    graph: Graph = {"after": ("t",), "t[x=1]": (), "t[x=[2]]": (), "t[x=3]": (), "one": ("t[x=1]",)}
    batch = Batch({"t[x=[2]]"}, 1, patience=3)
    asyncio.run(batch.run(cases_of(graph)))
    assert batch.reasons["after"] == "depends on 't[x=[2]]', which failed"
    assert batch.statuses["one"] == "passed"


def test_a_case_with_the_very_id_is_meant_before_those_of_a_record() -> None:
    batch = Batch({"t[0]"}, 1)
    asyncio.run(batch.run(cases_of({"after": ("t",), "t": (), "t[0]": ()})))
    assert batch.statuses["after"] == "passed"


def test_profiles_repeats_and_files_are_apart() -> None:
    def case(id: str, file: str, *needs: str) -> Case:
        return Case(id, {}, needs=needs, origin=Origin(file))

    cases = [case("a", "one"), case("b", "one", "a"), case("a", "two"), case("b", "two", "a")]
    queue = DependencyQueue(jobs_of(cases, 2, (PROFILE, Profile("q"))), needs_of(cases))
    blocked = []
    while (job := queue.next_ready()) is not None:
        is_bad = job.case.id == "a" and (job.profile.name, job.repeat, job.case.origin.file) == ("q", 1, "two")
        queue.complete(run_of(job), "failed" if is_bad else "passed")
        if job.blocked:
            blocked.append((job.case.id, job.profile.name, job.repeat, job.case.origin.file))
    assert blocked == [("b", "q", 1, "two")]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("failed", "depends on 'a', which failed"),
        ("error", "depends on 'a', which met an error"),
        ("blocked", "depends on 'a', which was blocked"),
        ("skipped", "depends on 'a', which was skipped"),
        ("unscored", ""),
        ("passed", ""),
    ],
)
def test_what_blocks_and_what_does_not(status: Status, reason: str) -> None:
    cases = cases_of({"a": (), "b": ("a",)})
    queue = DependencyQueue(jobs_of(cases), needs_of(cases))
    first = queue.next_ready()
    assert first is not None and queue.next_ready() is None and queue.is_waiting
    queue.complete(run_of(first), status)
    second = queue.next_ready()
    assert second is not None and (second.case.id, second.blocked) == ("b", reason)


def test_nobody_waits_for_a_case_that_is_not_selected() -> None:
    cases = cases_of({"b": ("a",), "c": ("b",)})
    needs = needs_of(cases)
    batch = Batch(set(), 1)
    asyncio.run(batch.run(cases))
    assert needs.not_selected() == ["a"] and batch.statuses == {"b": "passed", "c": "passed"}


def test_nobody_waits_for_a_run_that_is_left_out() -> None:
    """A case is among those of the batch, but its runs are not asked for."""
    cases = cases_of({"a": (), "b": ("a",), "c": ("b",)})
    queue = DependencyQueue(jobs_of(cases[1:]), needs_of(cases))
    job = queue.next_ready()
    assert job is not None and (job.case.id, job.blocked) == ("b", "")


def test_a_run_from_earlier_that_is_still_being_scored_is_waited_for() -> None:
    cases = cases_of({"a": (), "b": ("a",)})
    queue = DependencyQueue(jobs_of(cases[1:]), needs_of(cases))
    earlier = Run("k", "a", "p")
    queue.expect(earlier)
    assert queue.next_ready() is None and queue.is_waiting
    queue.complete(earlier, "failed")
    job = queue.next_ready()
    assert job is not None and job.blocked == "depends on 'a', which failed"


def test_only_what_somebody_needs_is_kept() -> None:
    cases = cases_of({f"c{number}": () for number in range(100)} | {"x": ("c7",)})
    assert needs_of(cases) == Needs({("", "c7"): 1})
    assert not needs_of(cases[:50])


def test_not_all_jobs_are_read_ahead_while_one_is_waited_for() -> None:
    read = 0
    cases = cases_of({"a": ()} | {f"c{number}": ("a",) for number in range(30_000)})

    def counted() -> Iterator[Job]:
        nonlocal read
        for job in jobs_of(cases):
            read += 1
            yield job

    queue = DependencyQueue(counted(), needs_of(cases))
    first = queue.next_ready()
    assert first is not None and queue.next_ready() is None and read == 10_001
    queue.complete(run_of(first), "passed")
    assert sum(1 for _ in iter(queue.next_ready, None)) == 30_000


def test_stopping_and_spending_end_it_while_others_wait() -> None:
    async def work(how: str) -> list[str]:
        cases = cases_of({"a": (), "b": ("a",)})
        slots, stop = Slots(2), asyncio.Event()
        queue = DependencyQueue(jobs_of(cases), needs_of(cases), slots.wake.set)

        async def one(job: Job) -> Run:
            if how == "spent":
                raise BudgetSpent("spent")
            return run_of(job)

        ended = []
        async for _, run in execute(queue, one, slots, stop):
            ended.append(run.case_id)
            # Nobody ever scores it: the judge is slow, or has failed.
            asyncio.get_running_loop().call_later(0.01, stop.set if how == "stop" else queue.give_up)
        return ended

    assert asyncio.run(work("stop")) == ["a"] and asyncio.run(work("fault")) == ["a"]
    with pytest.raises(BudgetSpent):
        asyncio.run(work("spent"))


def test_a_duplicate_neither_meets_nor_spoils_a_need() -> None:
    first, second = Case("a", {}), Case("a", {"x": 1})
    cases = list(
        numbered(
            [
                SelectedCase(first),
                SelectedCase(second, error="twice", is_duplicate=True),
                SelectedCase(Case("b", {}, needs=("a",))),
            ]
        )
    )
    queue = DependencyQueue(Jobs(cases, (PROFILE,), 1, Keys("t", {"p": ""})), collect_needs(lambda: cases))
    good, spare = queue.next_ready(), queue.next_ready()
    assert good is not None and spare is not None and queue.next_ready() is None
    queue.complete(run_of(spare), "error")
    assert queue.next_ready() is None
    queue.complete(run_of(good), "passed")
    job = queue.next_ready()
    assert job is not None and (job.case.id, job.blocked) == ("b", "")


def test_a_faulty_case_waits_for_nobody() -> None:
    cases = [SelectedCase(Case("b", {}, needs=("nobody",)), error="depends_on: no such case")]
    assert not collect_needs(lambda: cases)
