"""`evalloom score`: other checks, thresholds and judges on runs that are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = """\
{"id": "fr", "q": "Paris", "expected_output": "Paris"}
{"id": "it", "q": "Milan", "expected_output": "Rome"}
"""


Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder where a batch was run: one case passed, one failed."""
    Path("cases.jsonl").write_text(CASES, encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    assert in_process("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo").code == 1
    return in_process


def summary(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    return found


def batch() -> Path:
    return next(Path(".evalloom/batches").iterdir())


def test_scoring_again_runs_nothing_and_says_the_same(call: Call) -> None:
    runs = (batch() / "runs.jsonl").read_bytes()
    Path("cases.jsonl").unlink()
    done = call("score", "latest")
    assert done.code == 1 and "FAILED it" in done.out and "50.0%" in done.out
    assert (batch() / "runs.jsonl").read_bytes() == runs


def test_old_verdicts_stay_beside_the_new_ones(call: Call) -> None:
    before = (batch() / "verdicts.jsonl").read_bytes()
    Path("more.yaml").write_text("checks: [{kind: contains, expected: Par}]\n", encoding="utf-8")
    call("score", batch().name, "--checks", "more.yaml")
    call("score", batch().name[:17])
    assert (batch() / "verdicts.1.jsonl").read_bytes() == before
    assert b"contains" in (batch() / "verdicts.2.jsonl").read_bytes()
    assert json.loads((batch() / "batch.json").read_bytes())["scored_at"]


@pytest.mark.parametrize("text", ["- {kind: length, expected: 5}\n", '[{"kind": "length", "expected": 5}]'])
def test_more_checks_from_a_file(call: Call, text: str) -> None:
    file = "more.yaml" if text.startswith("-") else "more.json"
    Path(file).write_text(text, encoding="utf-8")
    done = call("score", "latest", "--checks", file, "-o", "out.jsonl")
    kinds = [
        [verdict["kind"] for verdict in json.loads(line)["verdicts"]]
        for line in Path("out.jsonl").read_bytes().splitlines()
    ]
    assert done.code == 1 and kinds == [["structural", "length"]] * 2


def test_the_judge_is_noted_in_the_batch(call: Call) -> None:
    Path("judge.yaml").write_text("default: {pass: true, reason: fine}\n", encoding="utf-8")
    (file,) = Path(".evalloom/batches").glob("*/batch.json")
    before = json.loads(file.read_bytes())
    call("score", "latest", "--judge", "scripted:judge.yaml")
    after = json.loads(file.read_bytes())
    assert (before["judge"], after["judge"]) == ("", "scripted:judge.yaml")
    assert after["models"].keys() - before["models"].keys() == {"scripted:judge.yaml"}
    call("score", "latest")
    assert json.loads(file.read_bytes())["judge"] == ""


def test_judge_and_thresholds(call: Call) -> None:
    Path("judge.yaml").write_text("default: {score: 0.6, reason: so so}\n", encoding="utf-8")
    Path("more.yaml").write_text(
        "- {kind: judge, name: taste, expected: is good, options: {scale: [0, 1]}}\n", encoding="utf-8"
    )
    judged = ("score", "latest", "--checks", "more.yaml", "--judge", "scripted:judge.yaml", "--json")
    strict = summary(call(*judged, "--threshold", "taste=0.7", "--threshold", "case=0.9"))
    loose = summary(call(*judged, "--threshold", "judge=0.5", "--threshold", "case=0.2"))
    assert (strict["passed"], loose["passed"]) == (0, 2)


WRONG = {
    ("score", "none"): "there is no batch 'none'",
    ("score", "../../cases.jsonl"): "there is no batch '../../cases.jsonl'",
    ("score", "latest", "--threshold", "half"): "--threshold: expected NAME=NUMBER, got 'half'",
    ("score", "latest", "--checks", "none.yaml"): "--checks none.yaml: there is no such file",
    ("score", "latest", "--judge", "nobody"): "there is no llm 'nobody'",
    ("score", "latest", "-o", "out.pdf"): "-o out.pdf: expected a file name ending in",
    ("score", "latest", "-o", "cases.jsonl"): "cases.jsonl: is an input file",
    ("score", "latest", "-j", "0"): "0 is not in the range",
    ("score",): "Missing argument 'BATCH'",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_leaves_the_verdicts_alone(call: Call, arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert (done.code, done.out) == (2, "") and WRONG[arguments] in done.err
    assert [path.name for path in batch().glob("verdicts*")] == ["verdicts.jsonl"]
    assert Path("cases.jsonl").read_text() == CASES
