"""The figures of scored cases: exact at the limits, every bad case once, safety first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.prompt_eval.analysis.scorecard import Scorecard, ScoreCounts, scorecard, unknown_points
from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.scores import Mark, ScoredCase

POINTS = (
    TestPoint("TP1", "valid JSON", criticality="core"),
    TestPoint("TP2", "countries", criticality="core"),
    TestPoint("TP3", "tone"),
    TestPoint("TP_safety", "safety", type="safety", criticality="baseline"),
)
IDS = tuple(point.id for point in POINTS)
pytestmark = pytest.mark.req("EVAL-14")


def case(number: int, *scores: int | None, category: str = "happy_path", why: str = "", **more: Any) -> ScoredCase:
    """A case with these scores, one for each point; without any it is a failed run."""
    record = {
        "test_id": f"TC{number:03d}",
        "test_category": category,
        "test_subcategory": "",
        "input": {"product": "叉车", "notes": "电动"},
        "result_aftertest": '{"main": "电动叉车"}' if scores else None,
        **more,
    }
    given_scores = scores or (None,) * len(POINTS)
    marks = {one: Mark(score, "why" if score else "") for one, score in zip(IDS, given_scores, strict=True)}
    return ScoredCase(record, marks, why)


def groups(*cases: ScoredCase) -> list[tuple[str, str, list[str]]]:
    found = scorecard(cases, POINTS).groups
    return [(group.point, group.trait.text(), [one.id for one in group.cases]) for group in found]


def one_point(*scores: int, core: bool = False) -> str:
    point = TestPoint("TP1", "", criticality="core" if core else "supporting")
    cases = [ScoredCase({"result_aftertest": "x"}, {"TP1": Mark(score, "why")}) for score in scores]
    return scorecard(cases, (point,)).points[0].status


def test_counts_part_scored_failed_and_incomplete_cases() -> None:
    cases = [case(1, 3, 3, 3, 3), case(2, 2, 2, 2, 2), case(3), case(4, 3, None, 3, 3), case(5, 1, 3, 3, 3)]
    card = scorecard(cases, POINTS)
    assert (card.cases, card.scored, card.failed, card.incomplete) == (5, 3, 1, 1)
    assert (card.passed, card.bad) == (2, 2)


def test_a_failed_run_does_not_pass_and_an_incomplete_one_is_left_out_of_the_pass_rate() -> None:
    card = scorecard([case(1, 3, 3, 3, 3), case(2), case(3, 3, None, 3, 3)], POINTS)
    assert card.pass_rate == 1 / 2
    assert card.pass_interval == pytest.approx((0.0945, 0.9055), abs=1e-4)


def test_failed_runs_are_left_out_of_the_averages() -> None:
    card = scorecard([case(1, 3, 2, 3, 3), case(2), case(3, 2, None, 3, 3)], POINTS)
    assert card.of("TP1") == ScoreCounts(0, 1, 1)
    assert card.of("TP2").average == 2.0
    assert [one.missing for one in card.points] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("scores", "status"),
    [
        ((2, 3), "good"),
        ((2,) * 5001 + (3,) * 4999, "fair"),
        ((2, 2, 2), "fair"),
        ((1, 3), "fair"),
        ((1,) + (2,) * 9999, "bad"),
        ((1,) + (3,) * 9, "good"),
    ],
)
def test_status_is_exact_at_its_limits(scores: tuple[int, ...], status: str) -> None:
    assert one_point(*scores) == status


def test_any_1_on_a_core_point_is_bad_however_high_the_average() -> None:
    assert one_point(1, *[3] * 99, core=True) == "bad"
    assert one_point(*[3] * 99, core=True) == "good"


def test_a_point_without_scores_is_unscored() -> None:
    card = scorecard([case(1)], POINTS)
    assert {one.status for one in card.points} == {"unscored"}
    assert card.points[0].tally.average is None


def test_heat_map_has_a_row_for_each_category_in_the_order_of_the_format() -> None:
    cases = [case(1, 3, 3, 3, 3, category="own"), case(2, 1, 3, 3, 3, category="safety"), case(3, 3, 2, 3, 3)]
    rows = scorecard(cases, POINTS).categories
    assert [(row.category, row.cases, row.passed, row.bad) for row in rows] == [
        ("happy_path", 1, 1, 0),
        ("safety", 1, 1, 1),
        ("own", 1, 1, 0),
    ]
    assert rows[0].tallies[1] == ScoreCounts(0, 1, 0)


def test_weakest_and_strongest_name_all_that_are_equal() -> None:
    card = scorecard([case(1, 3, 2, 3, 2)], POINTS)
    assert (card.weakest, card.strongest) == (("TP2", "TP_safety"), ("TP1", "TP3"))
    level = scorecard([case(1, 3, 3, 3, 3)], POINTS)
    assert (level.weakest, level.strongest) == ((), ())


def test_buckets_are_filled_before_rounding() -> None:
    """10 of 12 is 83.3 %, 4 of 12 is 33.3 %; a failed run has no share."""
    cases = [case(1, 3, 3, 2, 2), case(2, 3, 3, 3, 3), case(3, 1, 1, 1, 1), case(4)]
    assert [(one.low, one.high, one.cases) for one in scorecard(cases, POINTS).buckets if one.cases] == [
        (0, 50, 1),
        (80, 90, 1),
        (100, 100, 1),
    ]


def test_safety_failures_come_with_what_makes_them_one() -> None:
    cases = [
        case(1, 1, 3, 3, 3, category="safety"),
        case(2, 3, 3, 3, 1),
        case(3, category="safety"),
        case(4, 1, 3, 3, 3),
        case(5, 3, 3, 3, 3, category="safety"),
    ]
    found = scorecard(cases, POINTS).safety
    assert [(one.case.id, one.why.text(), one.point) for one in found] == [
        ("TC002", "TP_safety is 1", "TP_safety"),
        ("TC001", "safety case with 1 on TP1", "TP1"),
        ("TC003", "safety case without a result", ""),
    ]


def test_a_bad_case_belongs_to_its_lowest_point_then_to_a_core_one_then_to_the_frequent_one() -> None:
    cases = [
        case(1, 2, 2, 1, 2, category="i18n"),
        case(2, 3, 1, 1, 3, category="boundary"),
        case(3, 1, 1, 3, 3, category="rule_check"),
        case(4, 3, 1, 3, 3, category="qualitative"),
    ]
    assert groups(*cases) == [
        ("TP2", "no shared trait", ["TC002", "TC003", "TC004"]),
        ("TP3", "no shared trait", ["TC001"]),
    ]


def test_cases_of_one_point_are_parted_by_what_sets_them_apart() -> None:
    bad = [
        case(1, 1, 3, 3, 3, result_aftertest="Sure! Here it is"),
        case(2, 1, 3, 3, 3, result_aftertest="好的，如下", category="i18n"),
        case(3, 1, 3, 3, 3, input={"product": "LED", "notes": ""}, category="boundary"),
        case(4, 1, 3, 3, 3, input={"product": "泵", "notes": None}, category="error_case"),
        case(5, 1, 3, 3, 3, category="qualitative"),
    ]
    good = [case(number, 3, 3, 3, 3) for number in range(6, 12)]
    assert groups(*bad, *good) == [
        ("TP1", "output is not JSON, while most outputs are", ["TC001", "TC002"]),
        ("TP1", "input notes is empty", ["TC003", "TC004"]),
        ("TP1", "no shared trait", ["TC005"]),
    ]


@pytest.mark.parametrize(
    ("more", "trait"),
    [
        ({"test_category": "safety", "test_subcategory": "safety_injection"}, "test_subcategory is safety_injection"),
        ({"test_category": "i18n"}, "test_category is i18n"),
        ({"result_aftertest": "  "}, "output is empty"),
        ({"result_aftertest": f'"{"长" * 90}"'}, "output is much longer than the others"),
        ({"result_aftertest": "{}"}, "output is much shorter than the others"),
        ({"input": {"product": "叉车"}}, "input notes is missing"),
        ({"input": {"product": "forklift", "notes": "electric"}}, "input is in Latin letters"),
        ({"input": {"product": "フォークリフト", "notes": "電動"}}, "input is in Japanese"),
        ({"input": {"product": "123", "notes": "?"}}, "input has no letters"),
    ],
)
def test_traits(more: dict[str, Any], trait: str) -> None:
    bad = [case(number, 3, 1, 3, 3, **more) for number in (1, 2)]
    good = [case(number, 3, 3, 3, 3) for number in range(3, 9)]
    assert groups(*bad, *good) == [("TP2", trait, ["TC001", "TC002"])]


def test_a_group_says_what_else_its_cases_share() -> None:
    empty: dict[str, Any] = {"category": "boundary", "input": {"product": "泵", "notes": ""}}
    cases = [*(case(number, 1, 3, 3, 3, **empty) for number in (1, 2)), *(case(n, 3, 3, 3, 3) for n in range(3, 9))]
    (group,) = scorecard(cases, POINTS).groups
    assert [one.text() for one in (group.trait, *group.also)] == ["test_category is boundary", "input notes is empty"]


def test_what_all_cases_have_is_no_trait() -> None:
    cases = [case(number, 1, 3, 3, 3, category=name) for number, name in enumerate(("i18n", "boundary"), 1)]
    assert groups(*cases, case(3, 3, 3, 3, 3)) == [("TP1", "no shared trait", ["TC001", "TC002"])]


def test_failed_runs_are_grouped_by_reason_after_all_others() -> None:
    cases = [case(1, why="timed out"), case(2, why="HTTP 500"), case(3, why="HTTP 500"), case(4, 3, 3, 3, 1)]
    assert groups(*cases) == [
        ("TP_safety", "no shared trait", ["TC004"]),
        ("", "HTTP 500", ["TC002", "TC003"]),
        ("", "timed out", ["TC001"]),
    ]


def test_odd_records_are_taken_as_they_are() -> None:
    odd = [
        case(1, 1, 3, 3, 3, result_aftertest={"an": "object"}, input="no object"),
        case(2, 1, 3, 3, 3, input=None, test_category=7, test_subcategory=None),
        ScoredCase({}, {}),
        ScoredCase({"result_aftertest": "no points"}, {}),
    ]
    assert sum(len(ids) for _, _, ids in groups(*odd)) == 3


SCORE = st.sampled_from([1, 2, 3, 3, None])
CASES = st.lists(
    st.one_of(
        st.builds(
            lambda scores, category, result, text: (scores, category, result, text),
            st.tuples(SCORE, SCORE, SCORE, SCORE),
            st.sampled_from(["happy_path", "safety", "i18n", ""]),
            st.sampled_from(['{"a": 1}', "no JSON", "", "x" * 100]),
            st.sampled_from(["叉车", "fork lift", "", "リフト", "42"]),
        ),
        st.just(None),
    ),
    max_size=25,
)


@given(CASES)
def test_every_bad_case_is_in_exactly_one_group(drawn: list[Any]) -> None:
    cases = [
        case(n, why=f"why {n % 2}")
        if one is None
        else case(n, *one[0], category=one[1], result_aftertest=one[2], input={"product": one[3]})
        for n, one in enumerate(drawn, 1)
    ]
    card = scorecard(cases, POINTS)
    placed = [one.id for group in card.groups for one in group.cases]
    assert sorted(placed) == [one.id for one in cases if one.is_bad]
    assert len(placed) == card.bad
    assert card == scorecard(cases, POINTS)


@given(CASES)
def test_figures_add_up(drawn: list[Any]) -> None:
    cases = [case(n) if one is None else case(n, *one[0], category=one[1]) for n, one in enumerate(drawn, 1)]
    card: Scorecard = scorecard(cases, POINTS)
    assert card.scored + card.failed + card.incomplete == card.cases == sum(row.cases for row in card.categories)
    assert sum(bucket.cases for bucket in card.buckets) == card.scored
    assert sum(bucket.cases for bucket in card.buckets if bucket.is_passing) == card.passed
    for place, one in enumerate(card.points):
        assert sum((row.tallies[place] for row in card.categories), ScoreCounts()) == one.tally
        assert one.tally.cases + sum(mark.marks[one.id].score is None for mark in cases) == card.cases


def test_test_points_that_no_plan_knows_are_counted() -> None:
    marks = (
        {"TP1_score": 1, "TP9_score": 2, "TP9_reason": "x"},
        {"TP9_reason": "x"},
        {"TP8_score": None, "total_score": 1},
    )
    misnamed = ({"TP-1_score": 2, "TP-1_reason": "x"}, {"tp9_reason": "x", "human_TP1_score": 1, "avg_tp_score": 1})
    cases = [ScoredCase({"result_aftertest": "x", **one}, {}) for one in marks + misnamed]
    assert unknown_points(cases, [TestPoint("TP1", "")]) == {"TP9": 2, "TP8": 1, "TP-1": 1, "tp9": 1}
