"""A log that lost runs says so to every reader; one that is being written does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.batchlog import Log, find

Call = Callable[..., Any]
pytestmark = pytest.mark.req("WORK-13")
READERS = (
    ("stats", "latest"),
    ("sql", "select count(*) from runs"),
    ("report", "latest", "-o", "report.html", "--force"),
    ("history",),
    ("batches", "show", "latest"),
    ("batches", "repair", "latest"),
    ("baseline", "save", "again", "latest", "--force"),
    ("compare", "latest", "--against", "good"),
)


@pytest.fixture
def batch(in_process: Call) -> Path:
    """A finished batch of four runs, and a baseline of it."""
    Path("cases.jsonl").write_text("".join(json.dumps({"id": f"c{n}", "n": n}) + "\n" for n in range(4)))
    Path("functions.py").write_text("def same(n):\n    return n\n")
    in_process("run", "cases.jsonl", "--target", "python:functions:same", "--no-checks")
    in_process("baseline", "save", "good", "latest")
    return find("latest")


def cut(file: Path, size: int) -> None:
    os.truncate(file, file.stat().st_size - size)


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_every_reader_names_the_cut_line_and_the_runs_that_are_left(
    in_process: Call, batch: Path, command: tuple[str, ...]
) -> None:
    cut(batch / "runs.jsonl", 30)
    for _ in range(2):  # the second time from the copy
        err = in_process(*command).err
        assert err.count("[log_mended]") == 1
        assert f"{batch.as_posix()}/runs.jsonl:4: the last line is cut off and 3 of 4 runs can be read" in err
        assert "--resume" in err


def test_lines_that_are_gone_are_missing_runs(in_process: Call, batch: Path) -> None:
    lines = (batch / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (batch / "runs.jsonl").write_bytes(b"".join(lines[:3]))
    done = in_process("stats", "latest", "--json")
    [message] = json.loads(done.out)["warnings"]
    assert message in done.err and "3 of 4 runs can be read; the others were deleted" in message
    assert message.endswith("[runs_missing]") and json.loads(in_process("history", "--json").out)["warnings"]
    for language, words in (("en", "Runs are missing: "), ("zh", "缺少运行：")):
        in_process("report", "latest", "-o", f"{language}.html", "--lang", language)
        assert words in Path(f"{language}.html").read_text()


def test_resuming_brings_the_lost_runs_back(in_process: Call, batch: Path) -> None:
    cut(batch / "runs.jsonl", 30)
    resumed = in_process("run", "cases.jsonl", "--target", "python:functions:same", "--no-checks", "--resume")
    assert "runs.jsonl: a crash cut off the last line" in resumed.err
    assert json.loads((done := in_process("stats", "latest", "--json")).out)["total"]["total"] == 4 and not done.err


def test_rescoring_says_what_is_missing(in_process: Call, batch: Path) -> None:
    cut(batch / "runs.jsonl", 30)
    err = in_process("score", "latest").err
    assert "[log_mended]" in err and "3 of 4 runs" in err


def test_verdicts_that_are_cut_off_can_be_scored_again(in_process: Call, batch: Path) -> None:
    cut(batch / "verdicts.jsonl", 5)
    assert f"verdicts.jsonl:4: the last line is cut off. 'evalloom score {batch.name}'" in in_process("stats").err
    in_process("score", "latest")
    assert not in_process("stats").err


def test_a_stopped_batch_says_how_far_it_got(in_process: Call, batch: Path) -> None:
    lines = (batch / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (batch / "runs.jsonl").write_bytes(b"".join(lines[:1]))
    facts = json.loads((batch / "batch.json").read_text())
    (batch / "batch.json").write_text(json.dumps({**facts, "finished_at": ""}))
    assert "1 of 4 runs can be read: the batch stopped early" in in_process("stats").err


def test_a_batch_that_is_written_is_read_without_a_complaint(in_process: Call, batch: Path) -> None:
    log = Log.resume(batch)
    cut(batch / "runs.jsonl", 30)
    try:
        for command in (("stats",), ("sql", "select count(*) from runs"), ("report", "latest", "-o", "r.html")):
            done = in_process(*command)
            complaints = [line for line in done.err.splitlines() if "the batch is still running" not in line]
            assert done.code == 0 and not complaints
    finally:
        os.close(log._runs)


def test_a_reader_that_ends_early_leaves_no_word_of_a_library(batch: Path) -> None:
    command = [sys.executable, "-m", "evalloom", "sql", "select * from range(1000000)", "--csv"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 141
