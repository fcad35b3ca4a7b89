"""Every artifact of a folder is held against its form and against the others, whoever made it (EVAL-1)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval import workflow as steps
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.steps.check import check
from evalloom.prompt_eval.steps.context import StepOptions, open_context
from evalloom.prompt_eval.steps.run import run
from evalloom.prompt_eval.steps.score import score

EXAMPLE = Path(__file__).parents[3] / "examples" / "prompt-eval"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with everything that its steps make."""
    path = tmp_path_factory.mktemp("check")
    shutil.copytree(EXAMPLE, path / "example")
    folder, options = Folder(path / "results"), StepOptions(catalog.load(), warn=lambda message: None)
    steps.plan(path / "example" / "prompt_a.md", folder, options)
    context = open_context(folder, options)
    steps.make_cases(context)
    run(context)
    score(context)
    steps.report(folder)
    return path


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Folder:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return Folder(tmp_path / "results")


def found(folder: Folder) -> set[tuple[str, str]]:
    known = "reason_cites_nothing"  # two of the example's reasons, on purpose
    return {(one.path.name, finding.code) for one in check(folder) for finding in one.findings if finding.code != known}


def change(path: Path, number: int, **fields: Any) -> None:
    records = json.loads(path.read_text("utf-8"))
    records[number].update(fields)
    path.write_text(json.dumps(records, ensure_ascii=False), "utf-8")


@pytest.mark.req("EVAL-1")
def test_what_the_steps_make_is_in_order(folder: Folder) -> None:
    assert found(folder) == set()
    assert [one.path.name for one in check(folder)] == [
        "test_plan.yaml",
        "test_cases.json",
        "test_cases_with_results.json",
        "prompt_b.md",
        "final_scored_results.json",
        "final_scored_results.csv",
    ]


@pytest.mark.req("EVAL-1", "EVAL-2")
@pytest.mark.parametrize(
    ("name", "fields", "code"),
    [
        ("test_cases.json", {"test_id": "TC7"}, "bad_test_id"),
        ("test_cases.json", {"test_category": "boundary"}, "case_shortfall"),
        ("test_cases_with_results.json", {"test_description": "Another."}, "case_changed"),
        ("test_cases_with_results.json", {"result_aftertest": {"a": 1}}, "bad_result"),
        ("final_scored_results.json", {"result_aftertest": "another"}, "result_changed"),
        ("final_scored_results.json", {"TP3_score": "3/3"}, "bad_score"),
        ("final_scored_results.json", {"TP3_score": None}, "score_missing"),
        ("final_scored_results.json", {"TP3_reason": ""}, "missing_reason"),
        ("final_scored_results.json", {"TP9_score": 3}, "unknown_test_point"),
        ("final_scored_results.json", {"total_score": 1}, "total_differs"),
    ],
)
def test_an_edit_that_does_not_fit_is_named(folder: Folder, name: str, fields: dict[str, Any], code: str) -> None:
    change(folder.path / name, 0, **fields)
    assert (name, code) in found(folder)


def test_a_case_that_is_missing_in_a_later_step_is_named(folder: Folder) -> None:
    records = json.loads(folder.scored.read_text("utf-8"))
    folder.scored.write_text(json.dumps(records[1:]), "utf-8")
    assert ("final_scored_results.json", "result_changed") in found(folder)


def test_a_table_that_says_something_else_is_named(folder: Folder) -> None:
    folder.table.write_text(folder.table.read_text("utf-8").replace('"TC002"', '"TC999"'), "utf-8")
    assert found(folder) == {("final_scored_results.csv", "table_differs")}


def test_a_broken_plan_does_not_hide_the_rest(folder: Folder) -> None:
    folder.plan.write_text(folder.plan.read_text("utf-8").replace("core", "corre"), "utf-8")
    change(folder.cases, 0, test_id="TC7")
    assert {("test_plan.yaml", "bad_test_point"), ("test_cases.json", "bad_test_id")} <= found(folder)


def test_an_edited_prompt_b_must_name_every_point(folder: Folder) -> None:
    folder.prompt_b.write_text("Score TP3.", "utf-8")
    assert ("prompt_b.md", "prompt_b_lacks_points") in found(folder)


def test_a_folder_with_nothing_in_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match=r"\[no_artifact\]"):
        check(Folder(tmp_path))
