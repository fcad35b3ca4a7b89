"""What could not be scored, or expects nothing, is no success (WORK-1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import evalloom

pytestmark = pytest.mark.req("WORK-1")

Call = Callable[..., Any]
PLAIN = {"id": "a", "q": "yes", "expected_output": "contains:yes"}
JUDGED = {"id": "b", "q": "yes", "expected_output": "semantic:yes"}
FREE = {"id": "c", "q": "yes"}
WRONG = {"id": "d", "q": "no", "expected_output": "contains:yes"}


@pytest.fixture
def run(in_process: Call, tmp_path: Path) -> Call:
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    return partial(in_process, "run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo")


def put(*cases: dict[str, Any], settings: str = "") -> None:
    Path("cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    Path("evalloom.yaml").write_text(settings or "x-none: 1\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("cases", "flags", "code"),
    [
        ((PLAIN, JUDGED), (), 3),
        ((PLAIN, JUDGED), ("--fail-under", "0.1"), 3),
        ((PLAIN, JUDGED), ("--no-checks",), 3),
        ((PLAIN, JUDGED), ("--allow-unscored",), 0),
        ((JUDGED,), ("--allow-unscored",), 0),
        ((PLAIN, JUDGED, WRONG), (), 1),
        ((PLAIN, JUDGED, WRONG), ("--fail-under", "0.1"), 3),
        ((PLAIN, WRONG), ("--allow-unscored",), 1),
        ((PLAIN, FREE), (), 0),
        ((JUDGED, FREE), ("--allow-unscored",), 0),
        ((FREE,), (), 3),
        ((FREE,), ("--allow-unscored",), 3),
        ((FREE,), ("--no-checks",), 0),
        ((FREE,), ("--no-checks", "--fail-under", "0.1"), 1),
    ],
)
def test_exit_codes(run: Call, cases: tuple[dict[str, Any], ...], flags: tuple[str, ...], code: int) -> None:
    put(*cases)
    assert run(*flags).code == code


@pytest.mark.parametrize(("gate", "holds"), [("pass_rate >= 0.5", True), ("passed >= 9", False)])
def test_no_gate_decides_about_what_could_not_be_scored(run: Call, gate: str, holds: bool) -> None:
    put(PLAIN, JUDGED, settings=f"gates: ['{gate}']\n")
    done = run()
    assert done.code == 3 and (f"gate {gate}: holds" in done.out) is holds
    assert run("--allow-unscored").code == int(not holds)


def test_the_code_tells_it_from_an_outage(run: Call) -> None:
    put(PLAIN, JUDGED)
    done = run("--json")
    assert done.err.endswith("To accept that, pass --allow-unscored [unscored]\n") and "1 of 2 runs" in done.err
    assert done.summary["problem"]["code"] == "unscored" and "no judge" in done.summary["problem"]["message"]
    put(FREE)
    assert run("--json").summary["problem"]["code"] == "nothing_expected"
    assert run("--json", "--no-checks").summary["problem"] is None


def test_settings_accept_it_too(run: Call) -> None:
    put(PLAIN, JUDGED, settings="run: {allow_unscored: true}\n")
    assert run().code == 0
    put(FREE, settings="run: {no_checks: true}\n")
    assert run().code == 0


def test_scoring_again_has_the_same_rule(run: Call, in_process: Call) -> None:
    put(PLAIN, JUDGED)
    run()
    again = in_process("score", "latest", "--json")
    assert again.code == 3 and again.summary["problem"]["code"] == "unscored" and "[unscored]" in again.err
    assert in_process("score", "latest", "--allow-unscored").code == 0
    put(FREE)
    run()
    assert in_process("score", "latest").code == 3
    run("--no-checks")
    assert in_process("score", "latest").code == 0


def test_a_result_file_shows_it(run: Call) -> None:
    put(PLAIN, JUDGED, FREE)
    run("-o", "r.xml", "-o", "r.csv")
    report = Path("r.xml").read_text(encoding="utf-8")
    assert report.count("<error") == 1 and 'type="unscored">' in report and report.count("<skipped") == 1
    assert "nothing is expected of it" in Path("r.csv").read_text(encoding="utf-8-sig")


def test_python_has_the_same_rule(in_process: Call) -> None:
    def evaluate(*cases: dict[str, Any], **options: Any) -> evalloom.Results:
        return evalloom.evaluate(list(cases), lambda q: q, warn=lambda message: None, **options)

    results = evaluate(PLAIN, JUDGED)
    assert not results.passed and results.problem is not None and results.problem.code == "unscored"
    assert evaluate(PLAIN, JUDGED, allow_unscored=True).passed
    assert not evaluate(FREE).passed and evaluate(FREE, no_checks=True).passed and evaluate(PLAIN, FREE).passed


def test_many_reasons_do_not_hide_that_nothing_is_expected(run: Call) -> None:
    skipped = ({"id": f"s{number}", "conditions": f"profile == '{number}'", "inputs": {}} for number in range(120))
    put(*skipped, PLAIN, {**FREE, "conditions": "profile == 'echo'"})
    done = run("--json")
    assert done.code == 0 and done.summary["unscored"] == 1
