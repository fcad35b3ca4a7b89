"""The interval of a mean: against hand-computed values, its laws, and how often it holds the true mean."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.statistics import mean_interval, wilson_interval

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
@pytest.mark.req("WORK-4")
@pytest.mark.parametrize("size", [10, 30, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_holds_the_true_mean_often_enough(shape: str, size: int) -> None:
    truth, draw = SHAPES[shape]
    chance = random.Random(f"{shape} {size}")
    held = 0
    for _ in range(2_000):
        values = [draw(chance) for _ in range(size)]
        low, high = mean_interval(sum(values), sum(value * value for value in values), size)
        held += low <= truth <= high
    assert held / 2_000 >= (0.9 if size < 30 else 0.92)


# Sixteen of 0.2, and one each of 0 and 1: mean 4.2 / 18, variance 1.64 / 18 - (4.2 / 18)² = 0.036667, of a rate
# 0.178889. The ratio 0.204969 makes 16 cases count as 78.06; z² = ratio * 3.8415 + (1 - ratio) * 2.1098².
@pytest.mark.req("WORK-4")
def test_by_hand() -> None:
    ratio = 0.0366667 / 0.1788889
    z, cases = sqrt(ratio * 3.841459 + (1 - ratio) * 2.109816**2), 16 / ratio
    half = z / (1 + z * z / cases) * sqrt(0.16 / cases + z * z / (4 * cases**2))
    centre = (0.2 + z * z / (2 * cases)) / (1 + z * z / cases)
    assert mean_interval(3.2, 0.64, 16) == pytest.approx((centre - half, centre + half), abs=1e-4)
    assert mean_interval(0, 0, 0) == (0.0, 1.0)


@pytest.mark.req("WORK-4")
@given(st.integers(0, 200), st.integers(0, 200))
def test_of_zeros_and_ones_it_is_wilsons(ones: int, zeros: int) -> None:
    assert mean_interval(ones, ones, ones + zeros) == pytest.approx(wilson_interval(ones, ones + zeros))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_it_has_a_width_and_holds_the_mean(values: list[float]) -> None:
    low, high = mean_interval(sum(values), sum(value * value for value in values), len(values))
    assert 0 <= low <= sum(values) / len(values) <= high <= 1 and high > low
