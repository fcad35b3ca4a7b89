"""The means of measures on the same cases, and groups that have a limit of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare import CaseResult, Comparer, Comparison, ComparisonRules
from evalloom.analysis.compare_measures import MeasureSums

pytestmark = pytest.mark.req("RAG-10")

BUCKETS = ("official", "oral")
VALUES = st.floats(0, 1)
PAIRS = st.lists(st.tuples(VALUES, VALUES, st.sampled_from(["", "oral", "official"])), min_size=1, max_size=20)


@given(PAIRS)
def test_swapping_the_sides_turns_the_differences_round(pairs: list[tuple[float, float, str]]) -> None:
    there, back = MeasureSums(), MeasureSums()
    for base, now, bucket in pairs:
        there.add((("mrr", base),), (("mrr", now), ("map", now)), bucket)
        back.add((("mrr", now),), (("mrr", base),), bucket)
    for one, other in zip(there.result(), back.result(), strict=True):
        assert (one.name, one.bucket, one.cases) == (other.name, other.bucket, other.cases) and one.name == "mrr"
        assert one.difference == -other.difference and (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert one.low <= one.difference <= one.high
    assert there.result()[0].bucket == "" and there.result()[0].cases == len(pairs)


def compared(before: list[bool], now: list[bool], rules: ComparisonRules) -> Comparison:
    """Two rows of results; every other case is oral."""
    comparing = Comparer("p", "p", rules)
    for take, side in ((comparing.add_before, before), (comparing.add, now)):
        for number, passed in enumerate(side):
            status, tags = "passed" if passed else "failed", ("official" if number % 2 else "oral", "zh")
            take(CaseResult(str(number), 1, status, float(passed), tags=tags))  # type: ignore[arg-type]
    return comparing.result()


RESULTS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


@given(RESULTS, VALUES, VALUES, VALUES)
def test_allowing_more_to_a_bucket_never_adds_a_regression(
    results: list[tuple[bool, bool]], whole: float, drop: float, more: float
) -> None:
    before, now = [one[0] for one in results], [one[1] for one in results]
    strict, mild = (
        compared(before, now, ComparisonRules(whole, {"oral": limit}, ("bucket",), buckets=BUCKETS))
        for limit in sorted((drop, more))
    )
    assert strict.is_regression or not mild.is_regression
    assert sum(one.cases for one in mild.buckets) == len(results) and mild.tags == []


def test_a_bucket_is_told_as_a_tag_only_where_no_buckets_are() -> None:
    def names(*by: str) -> tuple[list[str], list[str]]:
        found = compared([True] * 4, [True] * 4, ComparisonRules(by=by, buckets=BUCKETS))  # type: ignore[arg-type]
        return [one.name for one in found.buckets], [one.name for one in found.tags]

    assert names("tag") == ([], ["official", "oral", "zh"])
    assert names("bucket") == (["official", "oral"], [])
    assert names("bucket", "tag") == (["official", "oral"], ["zh"]) and names() == ([], [])
