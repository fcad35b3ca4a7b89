"""Folders that cannot be written, disks that are full, batches from the future."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def small_files() -> None:
    """As a full disk: no file may grow beyond 40 KB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))


@pytest.mark.parametrize("fault", ["full", "read_only"])
@pytest.mark.parametrize("name", ["run", "score", "baseline", "prompt-eval", "stats", "index", "replay", "serve"])
def test_commands_say_that_the_disk_is_full_or_read_only_and_complete_later(
    name: str, fault: str, moments: Path, tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    unshare = [require_tool("unshare"), "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no mounts of one's own")
    command = [*unshare, sys.executable, str(HERE / "disks.py"), fault, name, str(tmp_path), str(moments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_full_disk_is_told_and_what_was_written_stays(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(f"{case} say: {case}" for case in range(300))
    done = suite.run("run", preexec_fn=small_files)
    assert done.returncode == 3 and "[cannot_write]" in done.stderr and "runs.jsonl" in done.stderr
    written = len(suite.lines())
    assert 0 < written < 300 and suite.run("batches", "show", "latest").returncode == 0
    found = suite.summary("--resume")
    assert (found["total"], found["passed"]) == (300, 300)
    assert len(suite.lines()) == len({run["key"] for run in suite.lines()}) == 300


def test_unwritable_folder_is_told_before_any_call(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(["say: a"])
    suite.write(".evalloom", "a file where a folder should be")
    done = suite.run("run")
    assert done.returncode == 3 and "[cannot_write]" in done.stderr and ".evalloom" in done.stderr
    assert server.stats()["requests"] == 0


@pytest.mark.req("WORK-42")
def test_output_that_cannot_be_written_is_told_before_any_call(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(["say: a"])
    suite.write("file", "no folder")
    done = suite.run("run", "-o", "file/out.json")
    assert done.returncode == 3 and "file/out.json" in done.stderr and "[cannot_write]" in done.stderr
    assert not suite.batches() and server.stats()["requests"] == 0


@pytest.mark.parametrize("command", ["show", "rm", "score", "resume"])
def test_batch_of_a_newer_format_is_refused(suite: Suite, serve: Callable[..., Server], command: str) -> None:
    suite.settings(serve().url)
    suite.cases(["say: a"])
    suite.run("run")
    manifest = suite.batches()[0] / "batch.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    id = manifest.parent.name
    arguments = {"show": ["batches", "show", id], "score": ["score", id], "resume": ["run", "--resume-from", id]}
    if command == "rm":
        assert suite.run("batches", "rm", id, "--yes").returncode == 0
        return
    done = suite.run(*arguments[command])
    assert done.returncode == 2 and "[newer_batch]" in done.stderr and "Upgrade evalloom" in done.stderr
    listed = suite.run("batches", "list")
    assert listed.returncode == 0 and "[newer_batch]" in listed.stderr


@pytest.mark.req("WORK-42")
def test_a_file_that_a_running_batch_writes_is_refused(suite: Suite) -> None:
    wait = (
        "import os, time\ndef answer(q):\n    while not os.path.exists('go'):\n        time.sleep(0.01)\n    return q\n"
    )
    suite.write("slow.py", wait)
    suite.cases(["say: a", "say: b"])
    command = ("run", "cases.jsonl", "--target", "python:slow:answer", "-o", "out.json", "-j", "1", "--no-checks")
    running = suite.start(*command)
    while not suite.batches() or not (suite.batches()[0] / "batch.json").exists():
        assert running.poll() is None
    refused = suite.run(*command)
    assert refused.returncode == 2 and "is running, and writes it" in refused.stderr and "--force" in refused.stderr
    suite.write("go", "")
    running.communicate(timeout=60)
    assert suite.run(*command).returncode == running.returncode and (suite.folder / "out.json").stat().st_size
