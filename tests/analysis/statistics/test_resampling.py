"""The paired bootstrap and permutation test: scipy as oracle, exact values, and their laws."""

from __future__ import annotations

from itertools import product
from math import inf, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalloom.analysis.statistics import mcnemar_exact, paired_bootstrap, paired_permutation

pytestmark = pytest.mark.req("WORK-10")
PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=30)
Pairs = list[tuple[int, int]]


def sides(pairs: Pairs) -> tuple[list[int], list[int]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


# Darwin's plants, Fisher, The Design of Experiments (1935): heights of 15 pairs of cross- and self-fertilised
# plants in eighths of an inch. Of all 2^15 signs 863 give a sum at least as large as 314, and as many at most -314.
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_the_permutation_test_of_fisher() -> None:
    assert sum(DARWIN) == 314
    exact = paired_permutation([0] * 15, DARWIN, samples=2**15)
    assert exact == pytest.approx(2 * 863 / 2**15)
    # 32,768 sums are more than the 10,000 of the default: they are drawn.
    assert paired_permutation([0] * 15, DARWIN) == pytest.approx(exact, abs=0.01)


@settings(max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9))
def test_the_exact_test_counts_all_signs(differences: list[float]) -> None:
    sums = [abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
            for signs in product((1, -1), repeat=len(differences))]  # fmt: skip
    least = abs(sum(differences)) - 1e-12 * sum(map(abs, differences))
    expected = sum(one >= least for one in sums) / len(sums)
    assert paired_permutation([0.0] * len(differences), differences) == pytest.approx(expected)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_exact_test_of_zeros_and_ones_is_mcnemars(gained: int, lost: int, same: int) -> None:
    a, b = [0] * gained + [1] * lost + [1] * (same + 1), [1] * gained + [0] * lost + [1] * (same + 1)
    assert paired_permutation(a, b) == pytest.approx(mcnemar_exact(gained, lost), rel=1e-9)


def test_drawn_p_values_are_close_to_scipys() -> None:
    random = np.random.default_rng(7)
    for shift in (0.0, 0.2, 0.4):
        a = random.normal(size=60)
        b = a + random.normal(shift, 1, size=60)
        expected = stats.permutation_test(
            (b - a,), np.mean, permutation_type="samples", n_resamples=20_000, vectorized=True, rng=1
        ).pvalue
        assert paired_permutation(a.tolist(), b.tolist(), seed=3) == pytest.approx(float(expected), abs=0.02)


def test_a_drawn_p_value_is_never_0() -> None:
    a = [float(number) ** 0.5 for number in range(100)]
    assert paired_permutation(a, [value * 2 + 1 for value in a], samples=99) == 1 / 100


@given(PAIRS, st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_resampling_depends_on_the_seed_and_not_on_the_order(pairs: Pairs, seed: int, random: Random) -> None:
    a, b = sides(pairs)
    shuffled = sides(random.sample(pairs, len(pairs)))
    assert paired_bootstrap(a, b, samples=200, seed=seed) == paired_bootstrap(*shuffled, samples=200, seed=seed)
    p = paired_permutation(a, b, samples=200, seed=seed)
    assert paired_permutation(*shuffled, samples=200, seed=seed) == p
    assert paired_permutation(b, a, samples=200, seed=seed) == p and 0 < p <= 1


@given(PAIRS)
def test_the_bootstrap_holds_the_difference_between_its_extremes(pairs: Pairs) -> None:
    a, b = sides(pairs)
    differences = [second - first for first, second in pairs]
    low, high = paired_bootstrap(a, b, samples=500)
    assert min(differences) - 1e-9 <= low <= sum(differences) / len(pairs) <= high <= max(differences) + 1e-9
    wide_low, wide_high = paired_bootstrap(a, b, confidence=0.99, samples=500)
    assert wide_low <= low and high <= wide_high


def test_the_bootstrap_is_close_to_scipys() -> None:
    random = np.random.default_rng(11)
    for draw in (
        lambda: random.normal(size=80),
        lambda: random.integers(0, 2, 80),
        lambda: random.exponential(size=80),
    ):
        a, b = draw(), draw()
        expected = stats.bootstrap(
            (b - a,), np.mean, method="percentile", n_resamples=20_000, rng=1
        ).confidence_interval
        width = expected.high - expected.low
        assert paired_bootstrap(a.tolist(), b.tolist()) == pytest.approx(
            (expected.low, expected.high), abs=width * 0.05
        )


def test_the_bootstrap_shrinks_with_cases() -> None:
    random, widths = Random(5), []
    for cases in (50, 500, 5_000):
        low, high = paired_bootstrap([0] * cases, [random.choice((-1, 0, 1)) for _ in range(cases)])
        widths.append(high - low)
    assert widths[0] > 2.5 * widths[1] > 6 * widths[2] > 0


def test_equal_sides_show_nothing() -> None:
    assert paired_bootstrap([0.1, 0.7], [0.1, 0.7]) == (0, 0) and paired_permutation([0.1, 0.7], [0.1, 0.7]) == 1


@pytest.mark.parametrize(("a", "b"), [([], []), ([1], [1, 2]), ([nan], [1]), ([1], [inf])])
def test_resampling_refuses_what_is_not_paired_or_finite(a: list[float], b: list[float]) -> None:
    for resample in (paired_bootstrap, paired_permutation):
        with pytest.raises(ValueError, match=r"^[ab]: expected"):
            resample(a, b)


def test_resampling_refuses_other_numbers_of_samples_and_seeds() -> None:
    for resample in (paired_bootstrap, paired_permutation):
        for options in ({"samples": 0}, {"samples": -1}, {"samples": 1.5}, {"seed": -1}):
            with pytest.raises(ValueError, match=r"(samples|seed): expected"):
                resample([1], [2], **options)
