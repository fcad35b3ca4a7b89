"""`evalloom.evaluate`: the engine from Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import evalloom
from evalloom.batchlog import pairs
from evalloom.core.errors import EvalloomError
from evalloom.core.sandbox import why_unavailable

RECORDS: list[dict[str, Any]] = [
    {"id": "up", "text": "hi", "expected_output": "HI"},
    {"id": "down", "text": "ho", "expected_output": "ho"},
]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loud(text: str) -> str:
    return text.upper()


def test_a_function_over_records() -> None:
    results = evalloom.evaluate(RECORDS, loud)
    assert [(run.case_id, scored.status) for run, scored in results] == [("up", "passed"), ("down", "failed")]
    assert results.pass_rate == 0.5 and not results.passed


def test_an_async_function_and_cases() -> None:
    async def greet(name: str) -> dict[str, str]:
        return {"greeting": f"Hello {name}"}

    check = evalloom.Check("equals", "Hello Ann", where="output.greeting")
    assert evalloom.evaluate([evalloom.Case("a", {"name": "Ann"}, (check,))], greet).passed


def test_checks_from_python_may_be_functions() -> None:
    results = evalloom.evaluate(RECORDS[:1], loud, checks=[{"python": str.isupper, "name": "is loud"}])
    verdicts = [(verdict.name, verdict.status) for _, scored in results for verdict in scored.verdicts]
    assert ("is loud", "passed") in verdicts


def test_a_file_a_dataset_and_a_spec() -> None:
    Path("hello_basic_v1.jsonl").write_text('{"id": "a", "q": "x", "expected_output": "x"}\n', encoding="utf-8")
    for dataset in ("hello_basic_v1.jsonl", Path("hello_basic_v1.jsonl"), evalloom.read("hello_basic_v1.jsonl")):
        assert evalloom.evaluate(dataset, {"template": "{{q}}"}, profiles="echo").passed


def test_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> bool:
        return evalloom.evaluate(RECORDS[:1], loud).passed

    assert asyncio.run(cell())


def test_options_are_the_flags() -> None:
    results = evalloom.evaluate(RECORDS, loud, repeat=3, limit=1)
    assert results.summary.total == 3
    with pytest.raises(evalloom.EvalloomError, match="bad_option"):
        evalloom.evaluate(RECORDS, loud, repeats=3)  # type: ignore[call-arg]


def test_the_record_holds_the_cases_of_python() -> None:
    results = evalloom.evaluate(RECORDS, loud, checks=[{"python": str.isupper}])
    assert {run.raw["id"] for run, _ in pairs(results.path)} == {"up", "down"}


def test_what_is_no_case_is_refused() -> None:
    with pytest.raises(evalloom.EvalloomError, match="no_dataset"):
        evalloom.evaluate([3], loud)  # type: ignore[list-item]


def test_no_case_is_no_dataset_whatever_the_folder_has() -> None:
    Path("evalloom.yaml").write_text("datasets: [hello_basic_v1.jsonl]\n", encoding="utf-8")
    Path("hello_basic_v1.jsonl").write_text('{"id": "a", "text": "x"}\n', encoding="utf-8")
    with pytest.raises(evalloom.EvalloomError, match="no_dataset"):
        evalloom.evaluate([], loud)


def test_without_an_id_what_is_expected_is_no_input() -> None:
    assert evalloom.evaluate([{"text": "hi", "expected_output": "HI"}], loud).passed


def test_outputs_are_written_and_checks_may_be_named() -> None:
    Path("mine.py").write_text("def short(text):\n    return len(text) < 9\n", encoding="utf-8")
    results = evalloom.evaluate(RECORDS[:1], loud, checks=[{"python": "mine:short"}], output=["r.csv"])
    assert results.passed and Path("r.csv").read_text(encoding="utf-8-sig").count("\n") == 2


@pytest.mark.skipif(bool(why_unavailable()), reason=f"no sandbox here: {why_unavailable()}")
@pytest.mark.req("PIPE-12")
def test_code_of_a_pipeline_runs_only_when_it_is_allowed() -> None:
    Path("p.yaml").write_text("id: p\ninputs: [n]\nsteps: [{id: add, code: 'def run(n): return n + 1'}]\n")
    cases = [{"id": "a", "inputs": {"n": 1}, "expected_output": 2}]
    with pytest.raises(EvalloomError, match=r"has code.*allow_code=True.*\[code_not_allowed\]"):
        evalloom.evaluate(cases, "pipeline:p.yaml")
    with pytest.raises(EvalloomError, match=r"allow_code: expected True or False, got 'false' \[bad_option\]"):
        evalloom.evaluate(cases, "pipeline:p.yaml", allow_code="false")  # type: ignore[arg-type]
    assert not Path(".evalloom").exists()
    assert evalloom.evaluate(cases, "pipeline:p.yaml", allow_code=True).passed
    Path("own.yaml").write_text("run: {allow_code: true}\n")
    assert evalloom.evaluate(cases, "pipeline:p.yaml", config="own.yaml").passed


@pytest.mark.req("WORK-8")
@pytest.mark.parametrize("options", [{"repeat": "5"}, {"repeat": 5.0}, {"repeat": {"n": 0}}, {"pass_if": "5/4"}])
def test_a_wrong_repeat_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(EvalloomError, match="expected"):
        evalloom.evaluate([{"id": "a", "q": "x", "expected_output": "x"}], lambda q: q, **options)


@pytest.mark.req("WORK-8")
def test_a_pass_rule_from_python() -> None:
    answers = iter("xyxyx")
    cases = [{"id": "a", "q": "x", "expected_output": "x"}]
    results = evalloom.evaluate(cases, lambda q: next(answers), repeat={"n": 5, "pass": 0.6}, concurrency=1)
    assert (results.passed, results.pass_rate, results.summary.total) == (True, 1.0, 5)
