"""`evalloom stats` for batches, and where it hands over to the statistics of HOP results."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
pytestmark = pytest.mark.req("WORK-11")
CASES = [
    {"id": f"c{n}", "tags": ["even" if n % 2 == 0 else "odd"], "inputs": {"n": n}, "expected_output": n}
    for n in range(1, 9)
]
FUNCTION = """\
def off(n):
    if n == 8:
        raise ValueError("no 8 here")
    return n + (n % 4 == 0)
"""


@pytest.fixture(autouse=True)
def suite(in_process: Call) -> None:
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in CASES))
    Path("functions.py").write_text(FUNCTION)


@pytest.fixture
def stats(in_process: Call) -> Call:
    in_process("run", "cases.jsonl", "--target", "python:functions:off")
    return lambda *flags: in_process("stats", *flags)


def test_the_latest_batch_is_the_default(stats: Call) -> None:
    done = stats()
    assert done.code == 0
    assert done.out.splitlines()[2].split() == ["all", "8", "8", "6", "1", "1", "75.0%", "40.9–92.9%"]
    assert "2 failures, 2 causes" in done.out
    assert "1 × structural: expected 4, got 5" in done.out
    assert "no 8 here" in done.out


def test_json_has_groups_and_causes_with_their_cases(stats: Call) -> None:
    result = json.loads(stats("latest", "--by", "tag,check", "--json").out)
    assert {name: group["pass_rate"] for name, group in result["by"]["tag"].items()} == {"odd": 1.0, "even": 0.5}
    assert result["by"]["check"]["structural"]["total"] == 7
    assert sorted(cause["cases"] for cause in result["causes"]) == [["c4"], ["c8"]]


def test_a_batch_that_is_still_running_is_named(stats: Call, in_process: Call) -> None:
    id = json.loads(
        in_process("run", "cases.jsonl", "--target", "python:functions:off", "--max-time", "0", "--json").out
    )["batch"]
    with Path(".evalloom/batches", id, "runs.jsonl").open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        done = stats(id, "--json")
    message = f"{id}: the batch is still running; only its finished runs are counted"
    assert message in done.err and json.loads(done.out)["warnings"] == [message]


def test_a_filter_and_a_metric(stats: Call) -> None:
    result = json.loads(stats("latest", "--metric", "latency", "--where", "output > '3'", "--json").out)
    assert result["metric"] == "latency"
    done = stats("latest", "--where", 'tag = "odd"', "--where", "pass = true")
    assert done.out.splitlines()[2].split()[:2] == ["all", "4"]
    assert "failure" not in done.out
    assert "No run fulfils the condition" in stats("latest", "--where", "score > 2").out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--by", "tags"], "Did you mean 'tag'"),
        (["--where", "scor > 1"], "Did you mean 'score'"),
        (["latest", "--rows", "3"], "--rows: goes with HOP results"),
        (["nothing-there"], "nothing-there"),
    ],
)
def test_wrong_usage_says_what_to_write(stats: Call, flags: list[str], words: str) -> None:
    done = stats(*flags)
    assert done.code == 2
    assert words in done.err


def test_without_any_batch_it_says_how_to_make_one(in_process: Call) -> None:
    done = in_process("stats")
    assert done.code == 2
    assert "'evalloom run' makes one" in done.err


def test_several_batches_count_a_case_once(stats: Call, in_process: Call) -> None:
    in_process("run", "cases.jsonl", "--target", "python:functions:off")
    result = json.loads(stats(".evalloom/batches", "--by", "batch", "--json").out)
    assert (result["total"]["total"], result["total"]["cases"]) == (16, 8)
    assert list(result["by"]["batch"]) == result["batches"]


@pytest.mark.req("WORK-5")
def test_a_batch_that_ended_by_its_own_results_has_no_interval(in_process: Call) -> None:
    in_process("run", "cases.jsonl", "--target", "python:functions:off")
    in_process("run", "cases.jsonl", "--target", "python:functions:off", "--until-sure", "--margin", "0.4")
    told = in_process("stats", ".evalloom/batches", "--by", "batch,tag", "--json").out
    figures = json.loads(told)
    plain, sure = figures["by"]["batch"].values()
    assert figures["until_sure"] == list(figures["by"]["batch"])[1:]
    assert plain["pass_rate_low"] is not None
    assert sure["pass_rate"] is not None and sure["pass_rate_low"] is sure["pass_rate_high"] is None
    assert figures["total"]["pass_rate_low"] is None
    assert "--until-sure" in in_process("stats").out
    scores = json.loads(in_process("stats", "--metric", "score", "--json").out)
    assert scores["total"]["mean"] is not None and scores["total"]["low"] is None


@pytest.mark.req("WORK-5")
@pytest.mark.parametrize("repeat", ["1", "2"])
def test_cases_are_those_of_the_pass_rate_everywhere(in_process: Call, repeat: str) -> None:
    cases = [*CASES, {"id": "c9", "tags": ["odd"], "inputs": {"n": 9}}]
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    command = ["run", "cases.jsonl", "--target", "python:functions:off", "--repeat", repeat, "--no-cache"]
    printed = in_process(*command).out
    summary = json.loads(in_process(*command, "--json").out)
    stats = json.loads(in_process("stats", "--json").out)["total"]
    report = in_process("report", "latest", "-o", "report.json")
    assert report.code == 0
    saved = json.loads(Path("report.json").read_text())["summary"]
    runs = 9 * int(repeat)
    for figures in (summary, stats, saved):
        assert (figures["total"], figures["cases"], figures["unscored"]) == (runs, 8, int(repeat))
    # Nine are never called cases beside a rate over eight.
    assert f"of {runs} runs" in printed and "the pass rate is over 8 cases" in printed
    assert "9 cases" not in printed and "profile  runs" in printed
