"""The statistics against published values and against their laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analyse.statistics import mean, percentile, wilson

finite = st.floats(-1e9, 1e9)


# 1 of 1 and 0 of 20 by hand: 1 / (1 + z²) and z² / (20 + z²), where z² is 3.8415.
@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (1, 1, 0.2065, 1),
    ],
)
def test_wilson_known_values(successes: int, total: int, low: float, high: float) -> None:
    assert wilson(successes, total) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_wilson_solves_its_equation(successes: int, failures: int) -> None:
    total = successes + failures
    for bound in wilson(successes, total):
        # A bound is the rate from which the observed one lies just z standard errors away.
        distance = abs(successes / total - bound) / (bound * (1 - bound) / total) ** 0.5
        assert distance == pytest.approx(1.959964, rel=1e-5)


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(0, 10_000), st.integers(1, 10_000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_contains_the_rate(successes: int, more: int, confidence: float) -> None:
    total = successes + more - 1 or 1
    low, high = wilson(successes, total, confidence)
    assert 0 <= low <= successes / total <= high <= 1


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_widens_with_confidence(successes: int, failures: int) -> None:
    low, high = wilson(successes, successes + failures, 0.95)
    wide_low, wide_high = wilson(successes, successes + failures, 0.99)
    assert wide_low <= low and high <= wide_high


@pytest.mark.parametrize(("q", "value"), [(0, 1), (0.25, 1.75), (0.5, 2.5), (0.95, 3.85), (1, 4)])
def test_percentile_interpolates(q: float, value: float) -> None:
    assert percentile([1, 2, 3, 4], q) == pytest.approx(value)
    assert percentile([7.0], q) == 7.0


@given(st.lists(finite, min_size=1), st.floats(0, 1))
def test_percentile_lies_among_the_values(values: list[float], q: float) -> None:
    found = percentile(sorted(values), q)
    assert min(values) - 1e-6 <= found <= max(values) + 1e-6


@given(st.lists(finite, min_size=1))
def test_mean_does_not_depend_on_the_order(values: list[float]) -> None:
    assert mean(values) == mean(values[::-1])


def test_nothing_has_no_mean_and_no_percentile() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean([])
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 0.5)
