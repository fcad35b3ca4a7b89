"""Workers and child processes that stand still, as on a machine that is suspended: others do their jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.cluster.harness import Batch, Cluster, children, content, local, make_project, wait_for

from evalloom.core.model import Case, Output, Profile, Scored
from evalloom.engine.cluster.connection import Connection
from evalloom.engine.cluster.dispatch import Dispatcher, Work, Worker
from evalloom.engine.cluster.jobs import Jobs
from evalloom.engine.cluster.tasks import Tasks
from evalloom.engine.run import Job, run_of

pytestmark = pytest.mark.req("WORK-40")
CASES = 600
SHORT = """\
import sys
if sys.argv[:1] != ["-c"]:
    from evalloom.engine.cluster import pool, worker
    pool._HEARTBEAT_S, pool._SILENT_S, worker._FROZEN_S = 0.5, 6, 6
"""


@pytest.fixture
def short(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that waits for seconds where others wait for minutes."""
    folder = tmp_path / "short"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHORT)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def cluster(tmp_path: Path, short: dict[str, str]) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.add_worker(restarts=False, before=(), **short)
        cluster.add_worker(restarts=False, before=(), **short)
        yield cluster
    finally:
        for worker in cluster.workers:
            worker.send_signal(signal.SIGCONT)
        cluster.close()


@pytest.mark.slow
def test_the_jobs_of_a_frozen_worker_run_elsewhere(cluster: Cluster, tmp_path: Path, short: dict[str, str]) -> None:
    folder = make_project(tmp_path / "project", CASES)
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "2", **short)
    batch.wait_for_runs(20)
    cluster.workers[0].send_signal(signal.SIGSTOP)
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected
    assert "it has not answered for 6 s. Its" in err and "[worker_lost]" in err


@pytest.mark.slow
def test_a_frozen_worker_that_comes_back_counts_nothing_twice(
    cluster: Cluster, tmp_path: Path, short: dict[str, str]
) -> None:
    folder = make_project(tmp_path / "project", CASES)
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "2", **short)
    batch.wait_for_runs(20)
    cluster.workers[0].send_signal(signal.SIGSTOP)
    # More than the other worker has: the jobs of the frozen one are with it now.
    batch.wait_for_runs(CASES - 100)
    cluster.workers[0].send_signal(signal.SIGCONT)
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected
    assert "it has not answered for 6 s. Its" in err
    # Its processes of before are not left behind.
    wait_for(lambda: not children(cluster.workers[0].pid))


@pytest.mark.slow
def test_a_frozen_child_process_is_ended(cluster: Cluster, tmp_path: Path, short: dict[str, str]) -> None:
    folder = make_project(tmp_path / "project", CASES)
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "2", **short)
    batch.wait_for_runs(20)
    (child,) = children(cluster.workers[0].pid)
    os.kill(child, signal.SIGSTOP)
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected
    assert "its process did not answer for 6 s and was ended. Its" in err and "[worker_lost]" in err


@pytest.mark.slow
def test_a_worker_that_takes_its_client_for_lost_gives_the_jobs_back(cluster: Cluster, tmp_path: Path) -> None:
    for worker in cluster.workers:
        worker.kill()
    impatient = tmp_path / "impatient"
    impatient.mkdir()
    # Less than the five seconds between two heartbeats of the client.
    (impatient / "sitecustomize.py").write_text(SHORT.partition("    pool.")[0] + "    worker._SILENCE_S = 3\n")
    cluster.add_worker(PYTHONPATH=str(impatient))
    folder = make_project(tmp_path / "project", 200)
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "1")
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected
    assert "its process was gone. Its" in err


def test_a_late_score_of_a_lost_worker_is_not_that_of_another_run() -> None:
    asyncio.run(take_late_results())


async def take_late_results() -> None:
    dispatcher = Dispatcher()
    errors: list[BaseException] = []
    connection = Connection("", None, Path(), Path())
    jobs = Jobs(connection, dispatcher, Tasks(errors.append), Path(), lambda worker: None)
    job = Job("k", Case("c", {}), Profile("p"), 0, 0)
    work = Work("k", job)
    dispatcher.workers["new"] = worker = Worker("new")
    worker.slots = 1
    waiting = asyncio.create_task(jobs.run(work))
    await asyncio.sleep(0)
    assert [chunk for _, chunk in dispatcher.next_chunks()] == [[work]]
    late, run = run_of(job, output=Output("late")), run_of(job, output=Output("new"))
    for kind, result in (("run", (late, None)), ("scored", Scored("k", "passed")), ("returned", None)):
        jobs.take("old", kind, "k", result)
    assert not waiting.done() and dispatcher.waiting == 0
    jobs.take("new", "run", "k", (run, None))
    assert (await waiting).output == run.output
    pending = jobs.pending_score("k")
    assert pending is not None
    jobs.take("old", "scored", "k", Scored("k", "passed"))
    assert not pending.done()
    jobs.take("new", "scored", "k", Scored("k", "failed"))
    assert pending.result().status == "failed" and errors == []
