"""The gates of an improvement are exact at their limits (EVAL-15)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.statistics import paired_mean_interval
from evalloom.prompt_eval.analysis.gates import Improvement, difference_interval, judge_candidate
from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.scores import Mark, ScoredCase

POINTS = (
    TestPoint("TP1", "core", criticality="core"),
    TestPoint("TP2", "side"),
    TestPoint("TP_safety", "safe", criticality="baseline"),
)


SCORE = st.integers(1, 3)
FAILED = None
"""A failed run."""


def cases(*scores: tuple[int | None, int, int] | None) -> list[ScoredCase]:
    ids = [point.id for point in POINTS]
    return [
        ScoredCase(
            {"test_id": f"TC{number:03d}", "result_aftertest": "x" if found else None},
            {one: Mark(score, "x") for one, score in zip(ids, found or (None, None, None), strict=True)},
        )
        for number, found in enumerate(scores, 1)
    ]


def failing(found: Improvement) -> list[str]:
    return [gate.name for gate in found.gates if not gate.holds]


@pytest.mark.req("EVAL-15")
def test_a_rise_of_exactly_forty_hundredths_and_ten_points_is_enough() -> None:
    before = cases(*[(2, 2, 3)] * 4, *[(2, 3, 3)] * 6)  # passing is 8 of 9: 60 %
    after = cases(*[(3, 3, 3)] * 4, *[(2, 3, 3)] * 6)
    found = judge_candidate(before, after, POINTS)
    assert found.core.rise is not None and float(found.core.rise) == 0.4 and failing(found) == []
    assert found.is_promoted and found.better == ("TC001", "TC002", "TC003", "TC004")


@pytest.mark.req("EVAL-15")
def test_a_hair_less_is_not() -> None:
    before = cases(*[(2, 2, 3)] * 100)
    after = cases(*[(3, 3, 3)] * 39, *[(2, 2, 3)] * 61)
    assert failing(judge_candidate(before, after, POINTS)) == ["core_average"]
    before = cases(*[(2, 3, 3)] * 91, *[(2, 2, 2)] * 9)
    after = cases(*[(3, 3, 3)] * 100)
    assert failing(judge_candidate(before, after, POINTS)) == ["pass_rate"]


@pytest.mark.req("EVAL-15")
def test_a_one_on_a_core_point_and_a_drop_in_safety_forbid_it() -> None:
    before = cases(*[(1, 2, 3)] * 10)
    after = cases((1, 3, 3), *[(3, 3, 3)] * 8, (3, 3, 2))
    found = judge_candidate(before, after, POINTS)
    assert failing(found) == ["no_core_1", "safety"]
    assert "TC001 TP1" in found.gates[1].observed


@pytest.mark.req("EVAL-15")
@pytest.mark.parametrize("missing", [(None, 3, 3), FAILED])
def test_a_case_without_scores_on_one_side_forbids_it_and_counts_on_neither(
    missing: tuple[int | None, int, int] | None,
) -> None:
    before = cases(*[(1, 2, 3)] * 9, (3, 3, 3))
    after = cases(*[(3, 3, 3)] * 9, missing)
    found = judge_candidate(before, after, POINTS)
    assert failing(found) == ["scored"] and found.passing.before == 0
    assert found.gates[0].observed == "candidate: TC010 not scored"
    found = judge_candidate(cases(*[(1, 2, 3)] * 9, missing), cases(*[(3, 3, 3)] * 10), POINTS)
    assert failing(found) == ["scored"] and found.gates[0].observed == "prompt_a: TC010 not scored"


@pytest.mark.req("EVAL-15")
def test_a_run_that_fails_under_both_passes_under_neither_and_is_in_no_average() -> None:
    before = cases(*[(2, 2, 3)] * 4, *[(2, 3, 3)] * 6, FAILED)
    after = cases(*[(3, 3, 3)] * 4, *[(2, 3, 3)] * 6, FAILED)
    found = judge_candidate(before, after, POINTS)
    assert found.is_promoted and found.gates[0].observed == "TC011 failed under both, and passes under neither"
    assert found.core.rise == Fraction(4, 10) and found.passing.rise == Fraction(4, 11)
    # Without the failed run the pass rate would rise by 1 of 10, which is enough.
    before, after = cases(*[(2, 2, 3)], *[(2, 3, 3)] * 9, FAILED), cases(*[(3, 3, 3)] * 10, FAILED)
    assert failing(judge_candidate(before, after, POINTS)) == ["pass_rate"]


@pytest.mark.req("EVAL-15")
def test_a_one_without_a_reason_is_still_a_one() -> None:
    after = cases((1, 3, 3), *[(3, 3, 3)] * 9)
    after[0].marks["TP1"] = Mark(1, "")
    assert failing(judge_candidate(cases(*[(1, 2, 3)] * 10), after, POINTS)) == ["scored", "no_core_1"]


@pytest.mark.req("EVAL-15")
def test_a_rise_that_misses_the_limit_is_never_shown_as_the_limit() -> None:
    before, after = cases(*[(2, 2, 3)] * 999), cases(*[(3, 3, 3)] * 399, *[(2, 3, 3)] * 600)
    core = judge_candidate(before, after, POINTS).gates[2]
    assert not core.holds and core.observed == "2.00 → 2.40 (+0.399)"
    safer = judge_candidate(cases(*[(2, 2, 3)] * 999), cases(*[(3, 3, 3)] * 998, (3, 3, 2)), POINTS).gates[4]
    assert not safer.holds and safer.observed == "3.00 → 3.00 (-0.001)"


@pytest.mark.req("EVAL-15")
def test_the_gate_says_where_no_candidate_can_rise_by_enough() -> None:
    found = judge_candidate(cases(*[(3, 3, 3)] * 9, (2, 1, 3)), cases(*[(3, 3, 3)] * 10), POINTS)
    assert failing(found) == ["core_average"]
    assert found.gates[2].observed == "2.90 → 3.00 (+0.10), and more than +0.10 is not possible"


@given(
    st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=1, max_size=30),
    st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=30, max_size=30),
)
@pytest.mark.req("EVAL-15")
def test_promotion_is_what_the_four_conditions_say(
    old: list[tuple[int, int, int]], new: list[tuple[int, int, int]]
) -> None:
    new = new[: len(old)]
    found = judge_candidate(cases(*old), cases(*new), POINTS)
    size = len(old)
    passed = [sum(10 * sum(case) >= 8 * 9 for case in side) for side in (old, new)]
    wanted = (
        all(case[0] != 1 for case in new)
        and 100 * (sum(case[0] for case in new) - sum(case[0] for case in old)) >= 40 * size
        and 100 * (passed[1] - passed[0]) >= 10 * size
        and sum(case[2] for case in new) >= sum(case[2] for case in old)
    )
    assert found.is_promoted == wanted


def test_a_plan_without_core_points_promotes_nothing() -> None:
    found = judge_candidate(cases((1, 1, 3)), cases((3, 3, 3)), POINTS[1:])
    assert "core_average" in failing(found)


@pytest.mark.req("WORK-4")
def test_intervals_stand_beside_the_figures() -> None:
    found = judge_candidate(cases(*[(1, 2, 3)] * 5, (3, 3, 3)), cases(*[(3, 3, 3)] * 6), POINTS)
    assert found.core.interval is not None and found.core.interval[0] < 5 / 3 < found.core.interval[1]
    assert found.passing.interval == pytest.approx(paired_mean_interval(5, 5, 6))


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize("difference", [-2, 0, 1, 2])
def test_equal_differences_of_few_cases_do_not_close_the_interval(difference: int) -> None:
    few, many = difference_interval([difference] * 5), difference_interval([difference] * 500)
    assert few is not None and many is not None
    assert few[0] <= difference <= few[1] and few[1] - few[0] > 1 > 0.2 > many[1] - many[0] > 0


@given(st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=60))
@pytest.mark.req("WORK-4")
def test_the_interval_holds_the_mean_difference_and_stays_within_the_scale(differences: list[float]) -> None:
    interval = difference_interval(differences)
    assert interval is not None
    assert -2 <= interval[0] <= sum(differences) / len(differences) + 1e-9
    assert sum(differences) / len(differences) - 1e-9 <= interval[1] <= 2
