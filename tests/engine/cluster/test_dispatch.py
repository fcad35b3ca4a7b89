"""Whatever happens to workers, each job has one place, and none is tried for ever."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Profile
from evalloom.engine.cluster.dispatch import MOST_DEATHS_ALONE, Dispatcher, Work, Worker
from evalloom.engine.run import Job

pytestmark = pytest.mark.req("WORK-40")
LOOP = asyncio.new_event_loop()


def work(number: int) -> Work:
    made = Work(f"k{number}", Job(f"k{number}", Case(f"c{number}", {}), Profile("p"), 0, number))
    made.run = LOOP.create_future()
    return made


def open_worker(dispatcher: Dispatcher, name: str, slots: int = 2) -> Worker:
    dispatcher.workers[name] = worker = Worker(name)
    worker.slots = slots
    return worker


def test_work_is_spread_evenly() -> None:
    dispatcher = Dispatcher()
    for name in ("a", "b"):
        open_worker(dispatcher, name)
    for number in range(20):
        dispatcher.add(work(number))
    assert [len(chunk) for _, chunk in dispatcher.next_chunks()] == [10, 10]


def test_a_worker_without_a_share_gets_nothing() -> None:
    dispatcher = Dispatcher()
    open_worker(dispatcher, "a", slots=0)
    dispatcher.add(work(1))
    assert list(dispatcher.next_chunks()) == []


@given(st.integers(1, 40), st.integers(1, 4), st.data())
def test_a_poison_ends_and_the_others_survive(jobs: int, workers: int, data: st.DataObject) -> None:
    dispatcher = Dispatcher()
    for number in range(workers):
        open_worker(dispatcher, f"w{number}")
    poison = f"k{data.draw(st.integers(0, jobs - 1))}"
    for number in range(jobs):
        dispatcher.add(work(number))
    done, given_up, deaths = set[str](), list[Work](), 0
    for _ in range(20 * jobs):
        for worker, chunk in list(dispatcher.next_chunks()):
            if any(one.key == poison for one in chunk):
                deaths += 1
                del dispatcher.workers[worker.address]
                given_up += dispatcher.lose(worker)
                open_worker(dispatcher, worker.address)
                continue
            for one in list(worker.works.values()):
                done.add(one.key)
                dispatcher.end(one)
        if len(done) + len(given_up) == jobs:
            break
    assert [one.key for one in given_up] == [poison]
    assert len(done) == jobs - 1 and poison not in done
    assert deaths <= MOST_DEATHS_ALONE + 2


def test_a_suspect_runs_with_nothing_beside_it() -> None:
    dispatcher = Dispatcher()
    worker = open_worker(dispatcher, "a")
    suspect = work(0)
    suspect.deaths = 2
    dispatcher.add(suspect)
    dispatcher.add(work(1))
    ((_, chunk),) = dispatcher.next_chunks()
    assert chunk == [suspect] and list(worker.works) == ["k0"]
    dispatcher.end(suspect)
    assert [[one.key for one in chunk] for _, chunk in dispatcher.next_chunks()] == [["k1"]]


def test_what_had_not_begun_is_no_suspect() -> None:
    dispatcher = Dispatcher()
    worker = open_worker(dispatcher, "a")
    first, second = work(0), work(1)
    for one in (first, second):
        dispatcher.add(one)
    list(dispatcher.next_chunks())
    assert list(dispatcher.lose(worker, ["k1"])) == []
    assert (first.deaths, second.deaths) == (0, 1)


def test_jobs_move_from_a_worker_that_is_behind() -> None:
    dispatcher = Dispatcher()
    slow, _ = open_worker(dispatcher, "slow"), open_worker(dispatcher, "quick")
    for number in range(12):
        dispatcher.add(work(number))
    for worker, chunk in dispatcher.next_chunks():
        for one in chunk if worker is not slow else ():
            dispatcher.end(one)
    assert dispatcher.idle_and_behind() is slow
