"""Users' code, disks and datasets that are worse than careless: forks, closed streams, deleted logs, pipes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite

pytestmark = [pytest.mark.slow, pytest.mark.req("WORK-42")]

CODE = """
import asyncio, atexit, os, sys, time

def answers(q):
    return q

def waits(q):
    time.sleep(0.05)
    return q

async def cancels_all(q):
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)

def forks(q):
    os.fork()
    return q

async def forks_on_the_loop(q):
    os.fork()
    return q

def leaves_a_child(q):
    if q == "0" and os.fork() == 0:
        while not os.path.exists("end"):
            time.sleep(0.05)
        os._exit(0)
    return q

def closes_streams(q):
    sys.stdout.close(); sys.stderr.close(); sys.stdin.close()
    return q

def crashes(q):
    os.abort()

class Computed(type):
    @property
    def __signature__(cls):
        raise KeyError("no signature")

class odd(metaclass=Computed):
    def __new__(cls, inputs):
        return inputs["q"]
"""


@pytest.fixture
def suite(suite: Suite) -> Suite:
    suite.write("bad.py", CODE)
    suite.cases("012")
    return suite


def test_call_that_is_cancelled_before_it_begins_ends(suite: Suite) -> None:
    done = suite.run("run", "cases.jsonl", "--target", "python:bad:cancels_all", "--no-checks")

    assert done.returncode == 1
    assert len(suite.lines()) == 3
    assert "was cancelled before it began, by other code on its event loop" in done.stdout


@pytest.mark.parametrize("function", ["forks", "forks_on_the_loop"])
def test_forked_copy_that_returns_ends(suite: Suite, function: str) -> None:
    # A copy that stays would hold the pipes open, and the call would not return.
    done = suite.run("run", "cases.jsonl", "--target", f"python:bad:{function}", "--no-checks")

    assert done.returncode == 0, done.stderr
    assert "a forked copy of this process returned from the code under test" in done.stderr
    assert [run["case_id"] for run in sorted(suite.lines(), key=lambda run: run["number"])] == ["c0", "c1", "c2"]


def test_module_that_forks_when_it_is_imported_runs_once(suite: Suite) -> None:
    suite.write("forking.py", "import os\nos.fork()\ndef answers(q): return q\n")
    done = suite.run("run", "cases.jsonl", "--target", "python:forking:answers", "--no-checks")

    assert done.returncode == 0, done.stderr
    assert len(suite.batches()) == 1


def test_child_that_is_left_does_not_keep_the_batch_locked(suite: Suite) -> None:
    arguments = ("run", "cases.jsonl", "--target", "python:bad:leaves_a_child", "--no-checks")
    command = [sys.executable, "-m", "evalloom", *arguments]
    try:
        # Not into pipes, which the child holds open.
        null = subprocess.DEVNULL
        assert subprocess.run(command, cwd=suite.folder, stdout=null, stderr=null, timeout=120).returncode == 0
        again = suite.run(*arguments, "--resume")
        assert again.returncode == 0, again.stderr
    finally:
        suite.write("end", "")


@pytest.mark.parametrize("place", ["import", "call"])
def test_closed_streams_do_not_silence_the_results(suite: Suite, place: str) -> None:
    closing = "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()\n"
    suite.write("closing.py", f"{closing if place == 'import' else ''}from bad import answers, closes_streams\n")
    function = "answers" if place == "import" else "closes_streams"
    suite.cases(["say: yes", "say: no", "say: nothing"])
    done = suite.run("run", "cases.jsonl", "--target", f"python:closing:{function}")

    assert done.returncode == 1
    assert "FAILED c0" in done.stdout and "3       0       3" in done.stdout


def test_exit_handler_makes_no_success_of_a_failure(suite: Suite) -> None:
    suite.write("late.py", "import atexit, os\natexit.register(lambda: os._exit(0))\ndef wrong(q): return 'no'\n")
    suite.cases(["say: yes"])

    assert suite.run("run", "cases.jsonl", "--target", "python:late:wrong").returncode == 1


def test_crash_says_where_it_was(suite: Suite) -> None:
    done = suite.run("run", "cases.jsonl", "--target", "python:bad:crashes", "--no-checks")

    assert done.returncode == -signal.SIGABRT
    assert "bad.py" in done.stderr and "in crashes" in done.stderr


def test_what_a_module_computes_may_fail(suite: Suite) -> None:
    suite.write("computed.py", "def __getattr__(name): raise SystemExit(0)\n")
    done = suite.run("run", "cases.jsonl", "--target", "python:computed:answers")
    assert done.returncode == 2 and "raised SystemExit: 0 [target_missing]" in done.stderr

    assert suite.run("run", "cases.jsonl", "--target", "python:bad:odd", "--no-checks").returncode == 0


def _delete(batch: Path) -> None:
    shutil.rmtree(batch)


def _move(batch: Path) -> None:
    batch.rename(batch.with_name("moved"))


def _cut(batch: Path) -> None:
    os.truncate(batch / "runs.jsonl", 10)


@pytest.mark.parametrize("lose", [_delete, _move, _cut])
def test_batch_that_another_program_takes_away_is_no_success(suite: Suite, lose: Callable[[Path], None]) -> None:
    suite.cases(map(str, range(2_000)))
    process = suite.start("run", "cases.jsonl", "--target", "python:bad:waits", "-j", "1", "--no-checks")
    suite.wait_for_runs(3, process)
    lose(suite.batches()[-1])
    _, err = process.communicate(timeout=120)

    assert process.returncode == 3
    assert "so runs are lost [batch_lost]" in err and "Traceback" not in err


def test_dataset_that_shrinks_while_it_runs_is_no_success(suite: Suite) -> None:
    suite.cases("x" * 2_000 for _ in range(2_000))  # more than is read ahead
    suite.write("cut.py", "import os\ndef answers(q):\n    os.truncate('cases.jsonl', 50_000)\n    return q\n")
    done = suite.run("run", "cases.jsonl", "--target", "python:cut:answers", "-j", "1", "--no-checks")

    assert done.returncode == 3
    assert "of 2,000 runs are missing: the dataset changed while the batch ran" in done.stderr


def test_dataset_from_a_pipe_is_read_once(suite: Suite) -> None:
    # As `evalloom run <(…)` gives it: the linter must not leave an empty dataset for the run.
    pipe = suite.folder / "pipe.jsonl"
    os.mkfifo(pipe)
    process = suite.start("run", "pipe.jsonl", "--target", "python:bad:answers", "--json", "--no-checks")
    pipe.write_bytes((suite.folder / "cases.jsonl").read_bytes())
    out, err = process.communicate(timeout=120)

    assert json.loads(out)["total"] == 3, err


def test_end_of_the_terminal_ends_the_batch_in_good_order(suite: Suite) -> None:
    suite.cases(map(str, range(2_000)))
    # A test run under nohup ignores the signal, and so would its children.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = suite.start("run", "cases.jsonl", "--target", "python:bad:waits", "-j", "1", "--no-checks")
    signal.signal(signal.SIGHUP, before)
    suite.wait_for_runs(2, process)
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=120)

    assert process.returncode == 3
    assert "Stopped: interrupted" in out
