"""Confidence sequences: simulated error rates, and the laws of the interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.analysis.sequence import ConfidenceSequence

pytestmark = pytest.mark.req("WORK-16")

_SAMPLES, _LOOKS = 100, 200
_MOST_MISSES = 9
"""5 % of the samples, and two standard errors of the simulation."""


@pytest.mark.parametrize("rate", [0.03, 0.3, 0.5, 0.9, 0.99])
def test_an_interval_that_is_looked_at_after_every_case_seldom_misses_the_rate(rate: float) -> None:
    draws = np.random.default_rng(7).random((_SAMPLES, _LOOKS)) < rate
    assert sum(_misses(row.astype(float), rate) for row in draws) <= _MOST_MISSES


def test_differences_are_covered_too() -> None:
    draws = np.random.default_rng(8).choice([-1.0, 0.0, 1.0], p=[0.15, 0.8, 0.05], size=(_SAMPLES, _LOOKS))
    assert sum(_misses(row, -0.1, low=-1.0) for row in draws) <= _MOST_MISSES


def test_an_interval_of_a_fixed_number_of_cases_would_miss_it_more_often() -> None:
    """The test above can fail: Wilson's interval, looked at as often, misses in far more than 5 %."""
    from evalloom.analysis.statistics import mean_interval

    draws = np.random.default_rng(7).random((_SAMPLES, _LOOKS)) < 0.5

    def misses(row: np.ndarray) -> bool:
        passed = np.cumsum(row)
        bounds = [mean_interval(int(passed[n - 1]), int(passed[n - 1]), n) for n in range(10, _LOOKS)]
        return any(not low <= 0.5 <= high for low, high in bounds)

    assert sum(map(misses, draws)) > 2 * _MOST_MISSES


def _misses(values: np.ndarray, truth: float, low: float = 0.0) -> bool:
    sequence = ConfidenceSequence(low, 1.0)
    for value in values:
        sequence.add(float(value))
        bounds = sequence.interval
        if not bounds[0] <= truth <= bounds[1]:
            return True
    return False


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=80))
def test_the_interval_is_in_range_holds_the_mean_and_is_narrower_than_everything(values: list[float]) -> None:
    sequence = ConfidenceSequence()
    for value in values:
        sequence.add(value)
    low, high = sequence.interval
    assert 0 <= low <= high <= 1
    assert sequence.count == len(values)
    if values:
        assert sequence.mean == pytest.approx(sum(values) / len(values))
        assert low <= sum(values) / len(values) + 1e-12 and sum(values) / len(values) - 1e-12 <= high
    else:
        assert (low, high) == (0, 1)


def test_equal_values_are_known_soon() -> None:
    sequence = ConfidenceSequence()
    for _ in range(100):
        sequence.add(1.0)
    assert sequence.interval[0] > 0.9
