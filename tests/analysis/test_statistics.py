"""The statistics against published values and against their laws."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare_figures import Sums
from evalloom.analysis.statistics import (
    detectable_drop,
    mcnemar,
    mean,
    paired_interval,
    percentile,
    permutation_test,
    permuted_variance,
    wilson,
)

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


# By hand: 2 · (C(5,0) + C(5,1)) / 2⁵ = 0.375; 2 / 2⁶ = 0.03125; 2 · (1 + 10 + 45) / 2¹⁰ = 0.109375.
@pytest.mark.req("HOP-20")
@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(4, 1, 0.375), (0, 6, 0.03125), (8, 2, 0.109375), (3, 3, 1), (0, 0, 1), (1, 0, 1)]
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_binomial_tail(gained: int, lost: int) -> None:
    total = gained + lost
    tail = sum(comb(total, number) for number in range(min(gained, lost) + 1))
    assert mcnemar(gained, lost) == pytest.approx(min(1.0, float(Fraction(2 * tail, 2**total))), rel=1e-9)


def test_mcnemar_of_a_million_is_quick() -> None:
    # A z of 2 by the normal approximation.
    assert mcnemar(501_000, 499_000) == pytest.approx(0.0455, abs=1e-3)


# 3 gained, 1 lost, 8 in all: (4 - 2) / 10 ± 1.96 · √((0.6 - 0.04) / 10), which is 0.2 ± 0.4638.
@pytest.mark.req("HOP-20")
def test_paired_interval_by_hand() -> None:
    assert paired_interval(3, 1, 8) == pytest.approx((-0.2638, 0.6638), abs=5e-5)
    assert paired_interval(0, 0, 0) == (-1.0, 1.0)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_paired_interval_turns_round_with_its_sides(gained: int, lost: int, same: int) -> None:
    total = gained + lost + same
    low, high = paired_interval(gained, lost, total)
    assert paired_interval(lost, gained, total) == pytest.approx((-high, -low))
    assert -1 <= low <= (gained - lost) / max(total, 1) <= high <= 1


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_permuted_variance_is_that_of_all_ways_to_part_the_runs(before: int, now: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, before + now))
    runs = [1] * passed + [0] * (before + now - passed)
    differences = [
        sum(runs[place] for place in places) / now - (passed - sum(runs[place] for place in places)) / before
        for places in combinations(range(before + now), now)
    ]
    mean_square = sum(difference**2 for difference in differences) / len(differences)
    assert permuted_variance(passed, before, now) == pytest.approx(mean_square)


def test_the_permutation_test_is_normal_and_needs_runs_that_differ() -> None:
    assert permutation_test(1.959964, 1) == pytest.approx(0.05) and permutation_test(-1.959964, 1) == pytest.approx(
        0.05
    )
    assert permutation_test(0.0, 0.0) == 1.0


# Each case passes in 90 of 100 runs, and those that broke in none.
@pytest.mark.req("WORK-7")
@pytest.mark.parametrize("cases", [30, 100])
@pytest.mark.parametrize("repeats", [1, 5])
def test_the_detectable_drop_shows_in_four_of_five_comparisons(cases: int, repeats: int) -> None:
    drop = detectable_drop(2 * 0.9 * 0.1 / repeats, cases)
    chance, shown = random.Random(2026), 0
    for _ in range(200):
        sums = Sums()
        for _ in range(cases):
            rates = (0.9, 0.0 if chance.random() < drop / 0.9 else 0.9)
            before, now = (sum(chance.random() < rate for _ in range(repeats)) for rate in rates)
            permuted = permuted_variance(before + now, repeats, repeats) if repeats > 1 else None
            sums.add(before / repeats, now / repeats, permuted)
        shown += sums.figures("").judgement == "worse"
    assert 0.75 < shown / 200 < 0.97


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_more_cases_and_less_noise_show_smaller_drops(variance: float, cases: int) -> None:
    assert 0 < detectable_drop(variance, cases + 1) <= detectable_drop(variance, cases) <= 1
    assert detectable_drop(variance / 2, cases) <= detectable_drop(variance, cases)
