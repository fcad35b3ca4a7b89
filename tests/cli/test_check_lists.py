"""A list of checks in a record, in the form of evalloom.yaml (WORK-3), and checks of the settings (WORK-2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalloom
from evalloom.core.model import Case

Call = Callable[..., Any]
CHECKS = [{"contains": "yes"}, {"regex": "^y", "where": "output"}, {"not-contains": "no", "name": "no no"}]
RECORD = {"id": "a", "q": "yes", "checks": CHECKS}


def cases(path: str | Path, dialect: str = "", mapping: str = "") -> list[Case]:
    return [case for case in evalloom.read(path, dialect, mapping).cases() if isinstance(case, Case)]


@pytest.fixture
def run(in_process: Call, tmp_path: Path) -> Call:
    def call(*records: dict[str, Any], template: str = "{{q}}", flags: tuple[str, ...] = ()) -> Any:
        Path("c_basic_v1.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
        Path("prompt.md").write_text(template, encoding="utf-8")
        target = ("--target", "prompt:prompt.md", "--profile", "echo", "--json")
        return in_process("run", "c_basic_v1.jsonl", *target, *flags)

    return call


@pytest.mark.req("WORK-3")
def test_the_list_is_read_as_checks_and_is_no_input(run: Call, in_process: Call) -> None:
    done = run(RECORD, {**RECORD, "id": "b", "checks": [{"contains": "nothing"}]})
    assert (done.code, done.summary["passed"], done.summary["failed"]) == (1, 1, 1)
    told = in_process("validate", "c_basic_v1.jsonl")
    assert told.code == 0 and "info: checks: read as checks of the case, in 2 records" in told.out
    again = in_process("score", "latest", "--json").summary
    assert (again["passed"], again["failed"]) == (1, 1)
    (case, _) = cases("c_basic_v1.jsonl")
    assert [one.name or one.kind for one in case.checks] == ["contains", "regex", "no no"] and case.inputs == {
        "q": "yes"
    }


@pytest.mark.req("WORK-3")
def test_a_target_that_declares_the_input_gets_it(run: Call, in_process: Call) -> None:
    done = run(RECORD, template="{{q}} {{checks}}")
    assert done.code == 3 and done.summary["problem"]["code"] == "nothing_expected"
    assert in_process("score", "latest", "--json").summary["unscored"] == 1


@pytest.mark.req("WORK-3")
def test_a_function_declares_its_parameters(run: Call, in_process: Call) -> None:
    run(RECORD)
    Path("mine.py").write_text("def ask(q, checks=None):\n    return str(checks)\n", encoding="utf-8")
    assert in_process("run", "c_basic_v1.jsonl", "--target", "python:mine:ask", "--json").summary["unscored"] == 1
    pipeline = "id: p\ninputs:\n  - {name: q}\n  - {name: checks, required: false}\nsteps:\n"
    step = "  - {id: s, type: code_node, code_ref: 'mine:ask', input_mapping: {q: q, checks: checks}, output_key: o}\n"
    Path("p.yaml").write_text(f"{pipeline}{step}outputs: [{{key: o}}]\n", encoding="utf-8")
    done = in_process("run", "c_basic_v1.jsonl", "--target", "pipeline:p.yaml", "--json")
    assert done.summary["unscored"] == 1, done.err


@pytest.mark.req("WORK-3")
def test_items_that_are_no_checks_are_errors_at_their_place(run: Call, in_process: Call) -> None:
    done = run({**RECORD, "checks": [*CHECKS, {"contians": "x"}, "text", {"contains": "x", "wher": "y"}]})
    assert done.code == 2 and done.err.count("[bad_check]") == 3
    assert (
        "checks[3]: the other items are checks, this one is not" in done.err and "Did you mean 'contains'?" in done.err
    )
    assert "c_basic_v1.jsonl:1:134" in done.err
    skipped = run(RECORD, {**RECORD, "id": "b", "checks": [{"contains": "x"}, 1]}, flags=("--skip-invalid",)).summary
    assert (skipped["passed"], skipped["error"]) == (1, 1)


@pytest.mark.req("WORK-3", "WORK-1")
@pytest.mark.parametrize(
    ("item", "said"),
    [({"contian": "x"}, "Did you mean 'contains'?"), ({"contains": "x", "wheer": "output"}, "Did you mean 'where'?")],
)
def test_a_list_whose_only_item_is_misspelled_is_an_error(run: Call, item: Any, said: str) -> None:
    done = run({**RECORD, "checks": [item]})
    assert done.code == 2 and "checks[0]: " in done.err and said in done.err and "[bad_check]" in done.err


@pytest.mark.req("WORK-3")
@pytest.mark.parametrize("written", ["visual", ["oil"], [], [{"who": "me"}], {"contains": "x"}])
def test_anything_else_stays_an_input(written: Any, tmp_path: Path) -> None:
    path = tmp_path / "c_basic_v1.jsonl"
    path.write_text(json.dumps({**RECORD, "checks": written}), encoding="utf-8")
    (case,) = cases(path)
    assert case.inputs == {"q": "yes", "checks": written} and not case.checks


@pytest.mark.req("WORK-3")
def test_files_read_with_a_mapping_have_it_in_every_dialect(tmp_path: Path, in_process: Call) -> None:
    Path("m.jsonl").write_text(json.dumps({"question": "yes", "rules": CHECKS}), encoding="utf-8")
    (case,) = cases("m.jsonl", "replay", "checks=rules")
    assert len(case.checks) == 3 and case.inputs == {"question": "yes"}
    Path("m.csv").write_text('key,question,rules\na,yes,"[{""contains"": ""yes""}, 1]"\n', encoding="utf-8")
    done = in_process("validate", "m.csv", "--dialect", "pipeline", "--map", "id=key,checks=rules")
    assert done.code == 2 and "checks[1]: the other items are checks" in done.out


@pytest.mark.req("WORK-3")
def test_a_conversion_keeps_what_the_other_format_can_express(tmp_path: Path, in_process: Call) -> None:
    Path("c_basic_v1.jsonl").write_text(json.dumps(RECORD), encoding="utf-8")
    done = in_process("convert", "c_basic_v1.jsonl", "--to", "replay")
    assert json.loads(done.out)["_expected"] == {"mustContain": ["yes"], "regex": "^y"}
    assert "not contains on output has no place" in done.err
    same = in_process("convert", "c_basic_v1.jsonl", "--to", "pipeline")
    assert json.loads(same.out) == {
        "id": "a",
        "tags": [],
        "inputs": {"q": "yes"},
        "expected_outputs": {"output": "contains:yes"},
    }


@pytest.mark.req("WORK-3")
def test_records_from_python_have_it_too(in_process: Call) -> None:
    results = evalloom.evaluate([{"q": "yes", "checks": CHECKS}], lambda q: q)
    assert results.passed and results.summary.passed == 1


@pytest.mark.req("WORK-2")
def test_a_run_warns_of_what_it_will_not_score_before_it_begins(run: Call) -> None:
    checks = [{"judge": "polite"}, {"contains": "yes"}]
    Path("evalloom.yaml").write_text("checks: [{similarity: a}, {regex: '('}]\n", encoding="utf-8")
    done = run({**RECORD, "checks": checks})
    assert done.code == 3 and "1 check of kind 'judge' needs a judge" in done.err
    assert "checks: 'similarity' will not be scored without embeddings" in done.err
    assert "checks: 'regex' will not be scored: expected a regular expression" in done.err


@pytest.mark.req("WORK-2")
def test_validate_without_a_path_looks_at_the_checks_of_the_settings(tmp_path: Path, in_process: Call) -> None:
    Path("c_basic_v1.jsonl").write_text(json.dumps(RECORD), encoding="utf-8")
    settings = "datasets: [c_basic_v1.jsonl]\nchecks:\n  - {contains: a}\n  - {regex: '('}\n  - {judge: polite}\n"
    Path("evalloom.yaml").write_text(settings, encoding="utf-8")
    done = in_process("validate")
    assert done.code == 0 and "evalloom.yaml:4:5: warning: checks[1]: will not be scored" in done.out
    assert "evalloom.yaml:5:5: info: checks[2]: 'judge' needs a judge" in done.out
    assert in_process("validate", "--strict").code == 2
    Path("evalloom.yaml").write_text(f"{settings}  - {{contians: b}}\n", encoding="utf-8")
    assert "evalloom.yaml:6:5: checks[3]: check: expected a known kind" in in_process("validate").out
