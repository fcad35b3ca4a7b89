"""How many runs are in flight, and what happens when one of them fails, sleeps or is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

import pytest

from evalloom.core.errors import BudgetSpent
from evalloom.core.http import sleeping, waiting
from evalloom.core.model import Case, Profile, Run
from evalloom.engine.run import Job, Slots, execute

PROFILE = Profile("p")


def jobs(count: int) -> Iterator[Job]:
    for number in range(count):
        yield Job(str(number), Case(str(number), {}), PROFILE, 0, number)


class Gauge:
    """A run that counts how many of its kind are awake at once."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0

    async def __call__(self, job: Job) -> Run:
        self.begun += 1
        self.enter()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.now -= 1
        return Run(job.key, job.case.id)

    def enter(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)


class Sleeper(Gauge):
    """A run that sleeps before it tries again."""

    async def __call__(self, job: Job) -> Run:
        self.begun += 1
        self.enter()
        await asyncio.sleep(0)
        self.now -= 1
        await sleeping.get()(0.01)
        self.enter()
        await asyncio.sleep(0)
        self.now -= 1
        return Run(job.key, job.case.id)


async def keys_of(
    todo: Iterable[Job],
    run: Callable[[Job], Awaitable[Run]],
    slots: Slots,
    stop: asyncio.Event | None = None,
) -> list[str]:
    return [done.key async for _, done in execute(todo, run, slots, stop or asyncio.Event())]


@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_every_job_runs_once_and_no_more_than_so_many_at_once(concurrency: int) -> None:
    async def work() -> None:
        slots, gauge = Slots(concurrency), Gauge()
        keys = await keys_of(jobs(200), gauge, slots)
        assert sorted(keys, key=int) == [str(number) for number in range(200)]
        assert (gauge.most, slots.active) == (concurrency, 0)

    asyncio.run(work())


def test_jobs_are_taken_only_when_there_is_a_slot() -> None:
    async def work() -> None:
        taken = 0

        def counted() -> Iterator[Job]:
            nonlocal taken
            for job in jobs(10_000):
                taken += 1
                yield job

        done = 0
        async for _ in execute(counted(), Gauge(), Slots(4), asyncio.Event()):
            done += 1
            assert taken <= done + 2 * 4
        assert done == 10_000

    asyncio.run(work())


def test_no_jobs_is_no_work() -> None:
    async def work() -> None:
        assert await keys_of([], Gauge(), Slots(4)) == []

    asyncio.run(work())


def test_a_run_that_sleeps_lends_its_slot() -> None:
    async def work() -> None:
        slots, release = Slots(1), asyncio.Event()

        async def run(job: Job) -> Run:
            if job.number == 0:
                await sleeping.get()(0.01)
                await release.wait()
            else:
                release.set()
            return Run(job.key, job.case.id)

        assert await keys_of(jobs(2), run, slots) == ["1", "0"]
        assert (slots.active, slots.asleep) == (0, 0)

    asyncio.run(work())


def test_a_run_that_waits_for_another_lends_its_slot() -> None:
    async def work() -> None:
        slots = Slots(1)
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def run(job: Job) -> Run:
            if job.number == 0:
                assert await waiting.get()(asyncio.shield(answered)) == "answer"
            else:
                await sleeping.get()(0.01)
                answered.set_result("answer")
            return Run(job.key, job.case.id)

        assert await keys_of(jobs(2), run, slots) == ["1", "0"]
        assert (slots.active, slots.asleep) == (0, 0)

    asyncio.run(work())


def test_those_who_wake_up_wait_for_a_slot() -> None:
    async def work() -> None:
        slots, sleeper = Slots(2), Sleeper()
        keys = await keys_of(jobs(60), sleeper, slots)
        assert len(set(keys)) == 60
        assert sleeper.most == 2
        assert (slots.active, slots.asleep) == (0, 0)

    asyncio.run(work())


def test_so_many_may_sleep_and_no_more() -> None:
    async def work() -> None:
        slots, stop = Slots(2), asyncio.Event()
        begun: list[str] = []

        async def run(job: Job) -> Run:
            begun.append(job.key)
            if len(begun) == 18:
                asyncio.get_running_loop().call_later(0.05, stop.set)
            await sleeping.get()(3600)
            raise AssertionError

        assert await keys_of(jobs(100), run, slots, stop) == []
        assert len(begun) == 2 + 2 * 8
        assert slots.asleep == 0

    asyncio.run(work())


def test_stopping_gives_up_what_is_in_flight() -> None:
    async def work() -> None:
        stop, cancelled = asyncio.Event(), []

        async def run(job: Job) -> Run:
            if job.number < 2:
                return Run(job.key, job.case.id)
            asyncio.get_running_loop().call_later(0.01, stop.set)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(job.key)
                raise
            raise AssertionError

        assert await keys_of(jobs(100), run, Slots(4), stop) == ["0", "1"]
        assert cancelled == ["2", "3", "4", "5"]

    asyncio.run(work())


def test_stopped_before_it_began() -> None:
    async def work() -> None:
        stop = asyncio.Event()
        stop.set()
        assert await keys_of(jobs(3), Gauge(), Slots(2), stop) == []

    asyncio.run(work())


def test_when_the_budget_is_spent_the_others_may_end() -> None:
    async def work() -> None:
        done, begun = [], []

        async def run(job: Job) -> Run:
            begun.append(job.key)
            if job.number == 1:
                raise BudgetSpent("spent")
            await asyncio.sleep(0.01)
            return Run(job.key, job.case.id)

        with pytest.raises(BudgetSpent, match="spent"):
            async for _, finished in execute(jobs(100), run, Slots(3), asyncio.Event()):
                done.append(finished.key)
        assert (done, begun) == (["0", "2"], ["0", "1", "2"])

    asyncio.run(work())


def test_a_bug_of_ours_ends_everything_and_nothing_hangs() -> None:
    async def work() -> None:
        others = []

        async def run(job: Job) -> Run:
            if job.number == 2:
                raise ZeroDivisionError
            others.append(asyncio.current_task())
            await asyncio.sleep(3600)
            raise AssertionError

        with pytest.raises(ZeroDivisionError):
            await keys_of(jobs(10), run, Slots(3))
        assert [task.cancelled() for task in others if task] == [True, True]

    asyncio.run(work())


def test_jobs_that_cannot_be_read_end_everything() -> None:
    async def work() -> None:
        def broken() -> Iterator[Job]:
            yield from jobs(3)
            raise OSError("the dataset is gone")

        with pytest.raises(OSError, match="the dataset is gone"):
            await keys_of(broken(), Gauge(), Slots(2))

    asyncio.run(work())


def test_whoever_stops_listening_leaves_nothing_running() -> None:
    async def work() -> None:
        runs = execute(jobs(100), Gauge(), Slots(4), asyncio.Event())
        async for _ in runs:
            break
        await runs.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(work())
