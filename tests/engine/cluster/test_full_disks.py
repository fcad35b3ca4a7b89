"""Disks that get full while a batch runs: that of the log, that of a worker's cache, that of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.cluster.harness import Batch, Cluster, content, local, make_project
from tests.engine.cluster.test_limits import make_prompts

if TYPE_CHECKING:
    from tests.llms.serving import Server

pytestmark = [pytest.mark.req("WORK-40"), pytest.mark.slow]
ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def unshare(require_tool: Callable[[str], str]) -> list[str]:
    command = [require_tool("unshare"), "--map-root-user", "--mount"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mounts of one's own")
    return command


def replace_workers(cluster: Cluster, unshare: list[str], disk: Path, **environment: str) -> None:
    """Replace the workers by two, each with a small disk of its own."""
    for worker in cluster.workers:
        worker.kill()
    disk.mkdir()
    mounted = [*unshare, "sh", "-c", 'mount -t tmpfs -o size=200k tmpfs "$0" && exec "$@"', str(disk)]
    for _ in range(2):
        cluster.add_worker(restarts=False, before=mounted, **environment)


def test_the_disk_of_the_log(cluster: Cluster, tmp_path: Path, unshare: list[str]) -> None:
    flags = ["--executor", "dask", "--scheduler", cluster.address]
    command = [*unshare, sys.executable, "-m", "tests.engine.cluster.disks", str(tmp_path / "disk"), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=240)
    assert done.returncode == 0, done.stderr
    here, there = json.loads(done.stdout.splitlines()[-1])
    assert "[cannot_write]" in here and "no space left on device" in here
    # Which of the two files meets the end of the disk is chance. Before the message stands the progress.
    here, there = here.splitlines()[-1], there.splitlines()[-1]
    assert re.sub(r"(runs|verdicts)\.jsonl", "FILE", there) == re.sub(r"(runs|verdicts)\.jsonl", "FILE", here)


def test_the_disk_of_the_cache_of_a_worker(
    cluster: Cluster, tmp_path: Path, unshare: list[str], serve: Callable[..., Server]
) -> None:
    folder = make_prompts(tmp_path / "project", serve().url, 400, "temperature: 0", "instant")
    (folder / "prompt.md").write_text(f"say: {{{{q}}}} {'x' * 2000}")
    code, expected = local(folder, "--no-cache")
    disk = tmp_path / "disk"
    replace_workers(cluster, unshare, disk, EVALLOOM_CLUSTER_HOME=str(disk))
    batch = Batch(folder, "--executor", "dask", "--scheduler", cluster.address)
    ended, _, err = batch.end()
    assert ended == code, err
    assert [run.keys() for run in content(batch.path())] == [run.keys() for run in expected]
    assert err.count("[cache_unusable]") == 1 and "disk is full" in err


def test_the_disk_that_the_code_of_a_worker_writes_to(cluster: Cluster, tmp_path: Path, unshare: list[str]) -> None:
    folder = make_project(tmp_path / "project", 60, "python:code.py:writes")
    disk = tmp_path / "disk"
    replace_workers(cluster, unshare, disk, DISK=str(disk))
    flags = ("--executor", "dask", "--scheduler", cluster.address)
    batch = Batch(folder, *flags)
    ended, _, err = batch.end()
    assert ended == 1, err
    runs, _ = content(batch.path())
    errors = [run["error"] for run in runs.values() if run.get("error")]
    # 200 KB hold ten files on each worker.
    assert len(runs) == 60 and len(errors) >= 40
    assert all("No space left on device" in error for error in errors)
    (tmp_path / "space").mkdir()
    for worker in cluster.workers:
        worker.kill()
    cluster.add_worker(DISK=str(tmp_path / "space"))
    resumed = Batch(folder, *flags, "--resume", "--retry-errors")
    assert resumed.end()[0] == 0 and resumed.path() == batch.path()
