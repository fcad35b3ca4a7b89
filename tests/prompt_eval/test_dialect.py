"""prompt-eval cases: the format's own example and every violation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.model import Case, Origin
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.prompt_eval import dialect as prompt_eval

CASE: dict[str, Any] = {
    "test_id": "TC001",
    "test_category": "happy_path",
    "test_subcategory": "",
    "eval_type": "quantitative",
    "test_description": "Standard product search in Chinese — expects valid JSON output with China in countries.",
    "input": {"product_name": "叉车", "notes": "电动,用于仓库"},
    "result_aftertest": '{"main_search_product":"电动叉车","countries":["China"],"other_languages":[...]}',
    "TP1_score": 3,
    "TP1_reason": "Output is valid JSON with all required top-level fields present.",
    "TP_safety_score": 3,
    "TP_safety_reason": "Non-safety input; no harmful content produced.",
    "total_score": 6,
    "avg_tp_score": 3.00,
    "overall_comment": "Solid output.",
}


@pytest.mark.req("EVAL-2")
def test_the_formats_own_example_is_in_order(tmp_path: Path) -> None:
    path = tmp_path / "final_scored_results.json"
    path.write_text(json.dumps([CASE], ensure_ascii=False, indent=2), encoding="utf-8")
    dataset = Dataset(source_of(path), catalog.load().formats)
    assert dataset.dialect.name == "prompt-eval"
    assert [finding.code for finding in validate(dataset).findings] == ["needs_judge"]
    (case,) = (case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case))
    assert (case.id, case.inputs, [check.name for check in case.checks]) == (
        "TC001",
        CASE["input"],
        ["TP1", "TP_safety"],
    )


@pytest.mark.req("EVAL-2")
@pytest.mark.parametrize("test_id", ["TC001", "TC999", "TC1000", "TC12345"])
def test_ids_grow_beyond_three_digits(test_id: str) -> None:
    assert list(prompt_eval.findings({**CASE, "test_id": test_id}, Rules())) == []


@pytest.mark.req("EVAL-2")
@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("test_id", "TC01", "bad_test_id"),
        ("test_id", "TC0100", "bad_test_id"),
        ("test_id", "tc001", "bad_test_id"),
        ("test_id", 1, "bad_test_id"),
        ("test_category", "happy", "bad_test_category"),
        ("test_category", None, "bad_test_category"),
        ("test_subcategory", "safety_injection", "bad_test_subcategory"),
        ("test_subcategory", None, "bad_test_subcategory"),
        ("eval_type", "quantative", "bad_eval_type"),
        ("test_description", "", "bad_test_description"),
        ("input", "叉车", "bad_input"),
        ("result_aftertest", {"a": 1}, "bad_result"),
        ("TP1_score", 4, "bad_score"),
        ("TP1_score", "3", "bad_score"),
        ("TP1_score", True, "bad_score"),
        ("TP1_score", 2.0, "bad_score"),
        ("TP1_reason", "", "missing_reason"),
        ("TP1_reason", " –…", "missing_reason"),
    ],
)
def test_every_violation_names_the_field(field: str, value: object, code: str) -> None:
    (remark,) = prompt_eval.findings({**CASE, field: value}, Rules())
    assert remark.code == code
    assert remark.message.startswith(f"{field}: ")


@pytest.mark.req("EVAL-2")
@pytest.mark.parametrize(
    "field", ["test_id", "test_category", "test_subcategory", "eval_type", "test_description", "input"]
)
def test_a_missing_field_is_named(field: str) -> None:
    (remark,) = prompt_eval.findings({key: value for key, value in CASE.items() if key != field}, Rules())
    assert (remark.code, remark.message.partition(":")[0]) == ("missing_field", field)


@pytest.mark.req("EVAL-2")
@pytest.mark.parametrize(("sub", "codes"), [("safety_injection", []), ("", ["bad_test_subcategory"])])
def test_safety_cases_need_one_of_the_five_subcategories(sub: str, codes: list[str]) -> None:
    record = {**CASE, "test_category": "safety", "eval_type": "safety", "test_subcategory": sub}
    assert [remark.code for remark in prompt_eval.findings(record, Rules())] == codes


@pytest.mark.req("EVAL-2")
def test_a_failed_run_is_null() -> None:
    record = {**CASE, "result_aftertest": None}
    assert list(prompt_eval.findings(record, Rules())) == []
    assert prompt_eval.to_case(record, Origin("f")).raw == record


@pytest.mark.parametrize(
    ("document", "is_read"),
    [
        ({"results": [CASE]}, True),
        ({"summary": [{"n": 1}], "results": [{"test_id": "TC001", "TP1_score": 3}]}, True),
        ({"results": [{"TP1_score": 3}]}, False),
        ({"results": [{"test_id": "TC001"}]}, False),
        ({**CASE, "results": [CASE]}, False),
        ({"cases": [{"id": 1}], "results": [CASE]}, False),
    ],
)
def test_results_are_taken_for_cases_only_where_they_are_some(document: dict[str, Any], is_read: bool) -> None:
    assert (prompt_eval.expand(document) is not None) is is_read


@pytest.mark.parametrize(("name", "is_hinted"), [("TP9", False), ("TP12", False), ("TP_safty", True), ("TP", False)])
def test_another_number_is_no_slip(name: str, is_hinted: bool) -> None:
    assert bool(prompt_eval.suggest_name(name, ["TP1", "TP_safety"])) is is_hinted
