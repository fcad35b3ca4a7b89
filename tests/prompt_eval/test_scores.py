"""Totals are computed exactly, from scores that are the integers 1, 2 and 3, and nothing is guessed."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.prompt_eval.scores import (
    Mark,
    ScoredCase,
    case_definition,
    points_in,
    read_scored,
    scored_remarks,
    write_scored,
)

CASE: dict[str, Any] = {
    "test_id": "TC001",
    "test_category": "happy_path",
    "test_subcategory": "",
    "eval_type": "quantitative",
    "test_description": "A usual product.",
    "input": {"product_name": "叉车"},
    "result_aftertest": "{}",
}
scores = st.lists(st.integers(1, 3), min_size=1, max_size=30)


def scored(*found: Any, **more: Any) -> ScoredCase:
    marks = {f"TP{number}_score": score for number, score in enumerate(found, 1)}
    reasons = {f"TP{number}_reason": "it is {}" for number in range(1, len(found) + 1)}
    record = {**CASE, **marks, **reasons, **more}
    return read_scored(record, points_in([record]))


@pytest.mark.req("EVAL-7")
@given(scores)
def test_totals_are_exact_and_halves_round_up(found: list[int]) -> None:
    case = scored(*found)
    total, most = sum(found), 3 * len(found)
    exact = Decimal(total) / Decimal(len(found))
    assert (case.total, case.max_score) == (total, most)
    assert case.average_hundredths == int((exact * 100).quantize(Decimal(1), ROUND_HALF_UP))
    assert case.percent == int((Decimal(100 * total) / most).quantize(Decimal(1), ROUND_HALF_UP))


@pytest.mark.req("EVAL-7")
def test_a_half_rounds_up() -> None:
    assert scored(*[3] * 3, *[2] * 5).average_hundredths == 238  # 19 ÷ 8 = 2.375
    assert scored(1, 2, 1, 1, 2, 1, 1, 1).percent == 42  # 10 ÷ 24 = 41.67
    assert scored(*[3] * 7, 2, *[1] * 0).percent == 96  # 23 ÷ 24 = 95.83


@pytest.mark.req("EVAL-7")
def test_totals_of_the_file_are_never_taken_over() -> None:
    case = scored(3, 3, total_score=99, max_score=1, avg_tp_score=9.9)
    assert (case.total, case.max_score, case.average_hundredths) == (6, 6, 300)
    assert [remark.code for remark in scored_remarks(case.record, ("TP1", "TP2"))] == ["total_differs"] * 3


@pytest.mark.req("EVAL-8")
@given(scores)
def test_a_case_is_bad_with_half_of_the_most_or_any_one(found: list[int]) -> None:
    assert scored(*found).is_bad == (2 * sum(found) <= 3 * len(found) or 1 in found)


@pytest.mark.req("EVAL-8")
def test_half_of_the_most_is_compared_before_rounding() -> None:
    # 2 × 3 ≤ 6: exactly half; a 2 alone is more than half of 3.
    assert ScoredCase(CASE, {"TP1": Mark(2, "x"), "TP2": Mark(1, "x")}).is_bad
    assert not ScoredCase(CASE, {"TP1": Mark(2, "x")}).is_bad


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize("score", ["3/3", "3", 0, 5, None, 3.0, True, [3], {}])
def test_what_is_no_score_is_missing_and_the_totals_stay_open(score: Any) -> None:
    case = scored(3, score)
    assert case.missing == ("TP2",)
    assert (case.total, case.average_hundredths, case.percent, case.is_bad, case.is_passed) == (None,) * 5
    assert case.comment == "[scoring incomplete: TP2]"
    assert scored(1, score).is_bad is True


@pytest.mark.req("EVAL-6")
def test_a_missing_reason_leaves_the_scoring_incomplete() -> None:
    case = scored(3, 1, TP2_reason=" ")
    assert case.missing == ("TP2",) and case.total is None and case.is_bad is True
    assert [remark.code for remark in scored_remarks(case.record, ("TP1", "TP2"))] == ["missing_reason"]


@pytest.mark.req("EVAL-6")
def test_a_test_point_that_nobody_planned_is_named() -> None:
    case = scored(3, 3)
    assert [remark.code for remark in scored_remarks(case.record, ("TP1",))] == ["unknown_test_point"]
    assert [remark.code for remark in scored_remarks(case.record, ("TP1", "TP2", "TP3"))] == ["score_missing"]


@pytest.mark.req("EVAL-9")
def test_a_failed_run_has_a_total_of_zero_and_is_bad() -> None:
    case = scored(None, None, result_aftertest=None, overall_comment="HTTP 500")
    assert case.is_failed and case.missing == () and (case.total, case.average_hundredths, case.percent) == (0, 0, 0)
    assert case.is_bad and case.is_passed is False and case.comment == "HTTP 500"


def test_scores_of_a_failed_run_do_not_count_and_are_named() -> None:
    case = scored(3, 3, result_aftertest=None)
    assert case.total == 0 and write_scored(case)["TP1_score"] is None
    assert [remark.code for remark in scored_remarks(case.record, ("TP1", "TP2"))] == ["score_without_result"]


@given(st.lists(st.sampled_from([1, 2, 3, None, "3/3"]), min_size=1, max_size=6), st.text(max_size=20))
def test_writing_and_reading_again_changes_nothing(found: list[Any], comment: str) -> None:
    case = scored(*found, overall_comment=comment, kept="as it is")
    points = list(case.marks)
    again = read_scored(write_scored(case), points)
    assert write_scored(again) == write_scored(case)
    assert again.comment == case.comment and again.record["kept"] == "as it is"


def test_points_come_in_order_of_appearance_with_safety_last() -> None:
    records: list[dict[str, Any]] = [
        {"TP_safety_score": 1, "TP2_score": 1},
        {"TP1_reason": "x", "human_TP7_score": 2, "TP2_reason": "y"},
    ]
    assert points_in(records) == ["TP2", "TP1", "TP_safety"]


def test_the_definition_of_a_case_has_none_of_its_results() -> None:
    assert case_definition(write_scored(scored(3, 2))) == {k: v for k, v in CASE.items() if k != "result_aftertest"}
