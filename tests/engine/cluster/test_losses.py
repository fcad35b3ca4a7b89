"""Workers and schedulers that die while a batch runs: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import resource
from pathlib import Path
from time import sleep

import pytest
from tests.engine.cluster.harness import Batch, Cluster, children, content, local, make_project, wait_for

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]


def test_two_killed_workers_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 150)
    code, expected = local(folder)
    cluster.add_worker()
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "4")
    batch.wait_for_runs(20)
    cluster.workers[0].kill()
    batch.wait_for_runs(60)
    cluster.workers[1].kill()
    ended, _, err = batch.end()
    assert ended == code, err
    assert content(batch.path()) == expected
    assert "will run again" in err


def test_a_lost_scheduler_ends_the_batch_which_resumes(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 150)
    code, expected = local(folder)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "4")
    batch.wait_for_runs(20)
    cluster.scheduler.kill()
    ended, _, err = batch.end()
    assert ended == 3
    assert "[scheduler_lost]" in err and "--resume" in err
    assert 20 <= len(content(batch.path())[0]) < 150
    resumed = Batch(folder, "--resume")
    assert resumed.end()[0] == code
    assert resumed.path() == batch.path()
    assert content(batch.path()) == expected


def test_a_worker_added_in_the_middle_takes_part(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 300, "python:code.py:uneven")
    code = (folder / "code.py").read_text()
    (folder / "code.py").write_text(code.replace("return q\n\ndef where", "time.sleep(0.1); return q\n\ndef where"))
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "4")
    batch.wait_for_runs(10)
    cluster.add_worker()
    ended, _, err = batch.end()
    assert ended == 0, err
    log = (tmp_path / "cluster" / "worker-2.log").read_text()
    assert "open_session" in log


@pytest.mark.parametrize("name", ["poison", "leaves"])
def test_a_case_that_kills_its_worker_every_time_is_an_error(cluster: Cluster, tmp_path: Path, name: str) -> None:
    folder = make_project(tmp_path / "project", 60, f"python:code.py:{name}")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    ended, _, err = batch.end()
    assert ended == 1, err
    runs, verdicts = content(batch.path())
    assert len(runs) == 60
    errors = {run["case_id"]: run["error"] for run in runs.values() if run.get("error")}
    assert errors.keys() == {"c21"}
    assert "[worker_lost]" in errors["c21"]
    assert len(verdicts) == 59


def test_a_case_that_kills_the_worker_itself_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    for worker in cluster.workers:
        worker.kill()
    for _ in range(2):
        cluster.add_worker(restarts=True)
    folder = make_project(tmp_path / "project", 60, "python:code.py:kills_the_worker")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    ended, _, err = batch.end()
    assert ended == 1, err
    runs, _ = content(batch.path())
    errors = {run["case_id"]: run["error"] for run in runs.values() if run.get("error")}
    assert len(runs) == 60 and errors.keys() == {"c21"}


def test_ctrl_c_while_there_is_no_worker(cluster: Cluster, tmp_path: Path) -> None:
    for worker in cluster.workers:
        worker.kill()
        worker.wait()
    folder = make_project(tmp_path / "project")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    sleep(4)
    assert batch.process.poll() is None
    batch.stop()
    ended, _, _ = batch.end()
    assert ended in (3, 130)


def test_a_slow_worker_does_not_keep_the_others_waiting(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_worker(SPEED="slow")
    folder = make_project(tmp_path / "project", 120, "python:code.py:uneven")
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "6", "--json")
    ended, _, err = batch.end()
    assert ended == 0, err
    seconds = [run["duration_s"] for run in raw_runs(batch.path())]
    # Its share of the cases, at half a second each on two slots, would take ten seconds.
    assert sum(one > 0.4 for one in seconds) < 30


def test_ctrl_c_ends_the_batch_which_resumes(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 150)
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "-j", "4")
    batch.wait_for_runs(20)
    batch.stop()
    ended, out, err = batch.end()
    assert ended == 3, (out, err)
    assert "interrupted" in out + err
    resumed = Batch(folder, "--executor", "dask", "--scheduler", cluster.address, "--resume")
    assert resumed.end()[0] == 1
    assert len(content(batch.path())[0]) == 150


def test_a_killed_client_leaves_no_process_behind(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 300)
    batch = Batch(folder, "--executor", "dask", "--workers", "1", "-j", "2")
    batch.wait_for_runs(10)
    before = children(batch.process.pid)
    assert before
    batch.process.kill()
    batch.process.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in before))


def test_a_full_disk_on_a_worker_leaves_it_out(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", 60, "python:code.py:quick")
    (folder / "notes.txt").write_text("x" * 100_000)
    code, expected = local(folder)
    # As on a full disk, no write beyond a size succeeds.
    resource.prlimit(cluster.workers[0].pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    ended, _, err = batch.end()
    assert ended == code, err
    assert "is left out" in err and "[worker_failed]" in err
    assert content(batch.path()) == expected


def raw_runs(path: Path) -> list[dict[str, float]]:
    from tests.engine.cluster.harness import read_lines

    return read_lines(path / "runs.jsonl")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
