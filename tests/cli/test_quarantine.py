"""A quarantine, end to end: `evalloom history` writes it, `evalloom run` and `evalloom score` honour it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.req("WORK-12")

Call = Callable[..., Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
TARGET = """\
from pathlib import Path


def answer(n):
    return "no" if str(n) in Path("failing").read_text().split() else "ok"
"""
ENTRY = "  - id: c{}\n    expires: {}\n"


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with four cases, of which those listed in the file `failing` fail."""
    cases = [{"id": f"c{n}", "n": n, "tags": ["a"], "expected_output": "ok"} for n in range(4)]
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    Path("target.py").write_text(TARGET, encoding="utf-8")
    return in_process


def run(call: Call, failing: str, *more: str) -> Any:
    Path("failing").write_text(failing)
    return call("run", "cases.jsonl", "--target", "python:target:answer", *more)


def quarantine(*numbers: int, expires: str = "2999-01-01") -> tuple[str, str]:
    Path("q.yaml").write_text("cases:\n" + "".join(ENTRY.format(n, expires) for n in numbers), encoding="utf-8")
    return "--quarantine", "q.yaml"


def test_flaky_cases_are_written_and_then_do_not_decide(call: Call) -> None:
    for failing in ("", "2", "", "2 1"):
        run(call, failing)
    done = call("history", "--quarantine", "q.yaml", "--days", "7")
    assert "q.yaml: 2 flaky cases added, until " in done.out
    text = Path("q.yaml").read_text(encoding="utf-8")
    assert text.index("id: c1") < text.index("id: c2") and text.count("file: cases.jsonl") == 2
    assert "reason: " in text and "fails 50% of 4 runs with nothing changed" in text
    done = run(call, "2", "--quarantine", "q.yaml")
    assert done.code == 0 and "quarantined: it does not decide the exit code" in done.out
    assert "75.0%" in done.out and "Quarantined: 2 cases, 1 failed: c2" in done.out
    assert "Without them: pass rate 100.0% over 2 cases" in done.out
    assert "no flaky case to add, 2 listed before" in call("history", "--limit", "4", "--quarantine", "q.yaml").out
    assert Path("q.yaml").read_text(encoding="utf-8") == text
    assert run(call, "2 3", "--quarantine", "q.yaml").code == 1


def test_gates_and_fail_under_leave_quarantined_cases_out(call: Call) -> None:
    flags = quarantine(1)
    assert run(call, "1", *flags, "--fail-under", "1").code == 0
    assert run(call, "1 2", *flags, "--fail-under", "0.7").code == 1
    Path("evalloom.yaml").write_text("gates: ['pass_rate >= 100%']\nrun: {quarantine: q.yaml}\n", encoding="utf-8")
    done = run(call, "1", "--json")
    summary = json.loads(done.out)
    assert done.code == 0 and summary["gates"][0]["holds"] and summary["pass_rate"] == 0.75
    assert summary["quarantine"]["pass_rate"] == 1.0 and summary["quarantine"]["deciding_cases"] == 3
    assert [case["case_id"] for case in summary["quarantine"]["cases"] if case["is_failing"]] == ["c1"]
    assert call("score", "latest").code == 0
    Path("q.yaml").unlink()
    assert call("score", "latest").code == 2


def test_an_expired_entry_counts_as_a_normal_case(call: Call) -> None:
    done = run(call, "1", *quarantine(1, expires="2020-02-03"))
    assert done.code == 1 and "ended on 2020-02-03" in done.err and "[quarantine_expired]" in done.err
    assert "Quarantined" not in done.out


def test_an_entry_that_matches_no_case(call: Call) -> None:
    flags = quarantine(1, 8)
    done = run(call, "1", *flags)
    assert done.code == 0 and "q.yaml:4: there is no case 'c8' in this run" in done.err
    assert "c8" not in run(call, "1", *flags, "--limit", "2").err


def test_every_case_in_quarantine(call: Call) -> None:
    done = run(call, "", *quarantine(0, 1, 2, 3))
    assert done.code == 3 and "[all_quarantined]" in done.err
    assert run(call, "1", *quarantine(0, 1, 2, 3), "--fail-under", "0.5").code == 3


def test_a_stable_case_is_named(call: Call) -> None:
    flags = quarantine(1, 2)
    for _ in range(9):
        assert "quarantine_stable" not in run(call, "2", *flags).err
    done = run(call, "2", *flags)
    assert "1 quarantined case passed in the last 10 batches: c1." in done.err and "[quarantine_stable]" in done.err


def test_one_profile_of_a_case(call: Call) -> None:
    Path("prompt.md").write_text("{{n}}", encoding="utf-8")
    Path("never.yaml").write_text("rules: [{match: '', answer: 'no'}]\n", encoding="utf-8")
    Path("q.yaml").write_text(
        "cases:\n" + "".join(f"{ENTRY.format(n, '2999-01-01')}    profile: echo\n" for n in range(4)), encoding="utf-8"
    )
    flags = ["run", "cases.jsonl", "--target", "prompt:prompt.md", "--quarantine", "q.yaml"]
    profiles = ["--profile", "echo", "--profile", "scripted:never.yaml"]
    assert call(*flags, *profiles).code == 1
    assert call(*flags, "--profile", "echo").code == 3


def test_a_file_with_errors_names_their_lines(call: Call) -> None:
    Path("q.yaml").write_text("cases:\n  - id: c1\n    expires: soon\n  - id: [1]\n    expire: 2030-01-01\n")
    done = run(call, "1", "--quarantine", "q.yaml")
    assert done.code == 2 and "[bad_quarantine]" in done.err
    assert "q.yaml:3: expires: expected the last day of the quarantine" in done.err
    assert "q.yaml:4: id: expected a text" in done.err and "Did you mean 'expires'?" in done.err
    assert run(call, "1", "--quarantine", "none.yaml").code == 2
    assert run(call, "1", "--quarantine", "q.yaml", "--until-sure").code == 2


def test_a_batch_with_its_own_rules_does_not_use_it(in_process: Call) -> None:
    shutil.copytree(EXAMPLES / "rag", ".", dirs_exist_ok=True)
    quarantine(1)
    with Path("evalloom.yaml").open("a", encoding="utf-8") as stream:
        stream.write("run: {quarantine: q.yaml}\n")
    assert "[quarantine_unused]" in in_process("rag", "retrieve", "eval_cases.jsonl").err


def test_junit_shows_a_failure_in_quarantine_as_skipped(call: Call) -> None:
    done = run(call, "1 2", *quarantine(1), "-o", "out.xml")
    assert done.code == 1
    suite = ElementTree.parse("out.xml").getroot()
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    [skipped] = suite.iter("skipped")
    assert (skipped.get("message") or "").startswith("in quarantine: ")
