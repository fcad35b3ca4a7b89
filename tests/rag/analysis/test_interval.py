"""The interval of a mean: against hand-computed values, its laws, and how often it holds the true mean."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.statistics import mean_interval, wilson

SHAPES: dict[str, tuple[float, Callable[[random.Random], float]]] = {
    "reciprocal ranks": (0.49, lambda chance: chance.choices((1, 0.5, 0.2, 0), (4, 1, 2, 3))[0]),
    "mostly found": (0.95, lambda chance: float(chance.random() < 0.95)),
    "mostly missed": (0.1, lambda chance: float(chance.random() < 0.1)),
    "half": (0.5, lambda chance: float(chance.random() < 0.5)),
    "even": (0.5, lambda chance: chance.random()),
    "all alike": (0.2, lambda chance: 0.2),
    "at both ends": (0.5, lambda chance: chance.betavariate(0.3, 0.3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 8, 25, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_holds_the_true_mean_often_enough(shape: str, size: int) -> None:
    truth, draw = SHAPES[shape]
    chance = random.Random(f"{shape} {size}")
    held = 0
    for _ in range(2_000):
        values = [draw(chance) for _ in range(size)]
        low, high = mean_interval(sum(values), sum(value * value for value in values), size)
        held += low <= truth <= high
    assert held / 2_000 >= 0.93


# Sixteen of 0.2: (3.2 + 2) / 20 = 0.26; mean of squares (0.64 + 2) / 20 = 0.132; variance 0.0644; t of 19 is 2.0930.
def test_by_hand() -> None:
    half = 2.0930 * sqrt(0.0644 / 20)
    assert mean_interval(3.2, 0.64, 16) == pytest.approx((0.26 - half, 0.26 + half), abs=1e-4)
    assert mean_interval(0, 0, 0) == (0.0, 1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_it_has_a_width_and_holds_the_mean(values: list[float]) -> None:
    low, high = mean_interval(sum(values), sum(value * value for value in values), len(values))
    assert 0 <= low <= sum(values) / len(values) <= high <= 1 and high > low


@given(st.integers(1, 50), st.floats(0, 1))
def test_wilson_takes_parts_of_successes(total: int, share: float) -> None:
    low, high = wilson(share * total, total)
    assert 0 <= low <= share <= high + 1e-12 <= 1 + 1e-12
