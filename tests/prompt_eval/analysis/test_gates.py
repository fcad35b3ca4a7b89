"""The gates of an improvement are exact at their limits (EVAL-15)."""

import pytest

from evalloom.prompt_eval.analysis.gates import Improvement, judge_candidate
from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.scores import Mark, ScoredCase

POINTS = (
    TestPoint("TP1", "core", criticality="core"),
    TestPoint("TP2", "side"),
    TestPoint("TP_safety", "safe", criticality="baseline"),
)


def cases(*scores: tuple[int | None, int, int]) -> list[ScoredCase]:
    ids = [point.id for point in POINTS]
    return [
        ScoredCase(
            {"test_id": f"TC{number:03d}", "result_aftertest": "x"},
            {one: Mark(score, "x") for one, score in zip(ids, found, strict=True)},
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
def test_incomplete_scores_forbid_it_and_count_on_neither_side() -> None:
    before = cases(*[(1, 2, 3)] * 9, (3, 3, 3))
    after = cases(*[(3, 3, 3)] * 9, (None, 3, 3))
    found = judge_candidate(before, after, POINTS)
    assert (
        failing(found) == ["scored"] and found.passing.before == 0 and "candidate: TC010 not" in found.gates[0].observed
    )
    assert (
        failing(judge_candidate(after, before, POINTS)) != []
        and failing(judge_candidate(after, after, POINTS))[0] == "scored"
    )


def test_a_plan_without_core_points_promotes_nothing() -> None:
    found = judge_candidate(cases((1, 1, 3)), cases((3, 3, 3)), POINTS[1:])
    assert "core_average" in failing(found)


def test_intervals_stand_beside_the_figures() -> None:
    found = judge_candidate(cases(*[(1, 2, 3)] * 5, (3, 3, 3)), cases(*[(3, 3, 3)] * 6), POINTS)
    assert found.core.interval is not None and found.core.interval[0] < 5 / 3 < found.core.interval[1]
    assert found.passing.interval is not None and found.safety.interval == (0.0, 0.0)
