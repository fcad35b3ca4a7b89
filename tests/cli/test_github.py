"""In GitHub Actions: the summary of the step, and annotations at the cases that failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.console.github import failure_annotations
from evalloom.core.model import Origin, Run, Scored
from evalloom.reports.run_report import RunReport

pytestmark = pytest.mark.req("WORK-14")
Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """In a job of GitHub Actions, in a folder of the repository; the echo answers with the question."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    return in_process


def ran(call: Call, answers: str, *more: str) -> Any:
    rows = [{"id": f"c{number}", "q": letter, "expected_output": "y"} for number, letter in enumerate(answers)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return call("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", *more)


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::")]


def test_each_command_appends_its_page_once_and_annotates_the_lines_of_cases(call: Call, tmp_path: Path) -> None:
    done = ran(call, "yyn")
    place = f"file={tmp_path.name}/cases.jsonl,line=3,title=c2 · echo"
    assert commands(done.out) == [f"::error {place}::structural: expected 'y', got 'n'"]
    assert commands(call("score", "latest").out) == commands(done.out)
    call("baseline", "save", "good")
    ran(call, "nyn")
    lost = commands(call("compare", "latest", "--against", "good").out)
    assert lost == [f"::warning {place}::structural: expected 'y', got 'n'".replace("=3", "=1").replace("c2", "c0")]
    summary = Path("summary").read_text("utf-8")
    assert summary.count("<!-- made by evalloom -->") == 4 and summary.startswith("**2 of 3 runs passed.**")
    assert summary.count("What changed against `good`") == 1


def test_json_on_stdout_stays_json(call: Call) -> None:
    done = ran(call, "yn", "--json")
    assert json.loads(done.out)["failed"] == 1 and Path("summary").exists()


def test_it_can_be_switched_off(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALLOOM_GITHUB", "0")
    assert commands(ran(call, "yn").out) == [] and not Path("summary").exists()


def test_a_summary_that_cannot_be_written_is_a_warning(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/folder/summary")
    done = ran(call, "yy")
    assert done.code == 0 and "warning: GITHUB_STEP_SUMMARY: no/such/folder/summary cannot be written" in done.err


def test_ten_cases_are_annotated_and_the_others_counted() -> None:
    rows = [(Run(f"k{n}", f"c{n}", number=n, error="100 %\r\nbad: a,b"), Scored(f"k{n}", "error")) for n in range(13)]
    lines = list(failure_annotations(RunReport({}, {}, [], rows)))
    assert len(lines) == 11 and lines[0] == "::error title=c0::100 %25%0D%0Abad: a,b"
    assert lines[10].startswith("::notice title=evalloom::3 more failing cases")


def test_a_case_in_quarantine_is_not_annotated() -> None:
    rows = [(Run(f"k{n}", f"c{n}", number=n, error="bad"), Scored(f"k{n}", "error")) for n in range(2)]
    report = RunReport({}, {}, [], rows, is_quarantined=lambda run: run.case_id == "c0")
    assert list(failure_annotations(report)) == ["::error title=c1::bad"]


def test_no_command_comes_from_the_data() -> None:
    text = "a,line=9::\n::set-env name=X::y"
    run = Run("k", text, text, error=text, origin=Origin(text, 3))
    (line,) = failure_annotations(RunReport({}, {}, [], [(run, Scored("k", "error"))]))
    properties, _, message = line.removeprefix("::error ").partition("::")
    assert [one.partition("=")[0] for one in properties.split(",")] == ["file", "line", "title"]
    assert "\n" not in line and message == "a,line=9::%0A::set-env name=X::y"
