"""Intervals of a rate and pass@k: published values, scipy and statsmodels as oracles, and their laws."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from evalloom.analysis.statistics import clopper_pearson, pass_at_k, pass_hat_k, wilson_interval

pytestmark = pytest.mark.req("WORK-10")
COUNTS = st.tuples(st.integers(0, 2_000), st.integers(0, 2_000)).filter(any)
CONFIDENCES = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])


# Newcombe, "Two-sided confidence intervals for the single proportion: comparison of seven methods", Statistics in
# Medicine 17 (1998), table I: the score method (3) and the method of Clopper and Pearson (5).
@pytest.mark.parametrize(
    ("k", "n", "wilson", "exact"),
    [
        (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
        (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
        (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
    ],
)
def test_the_intervals_of_newcombe(k: int, n: int, wilson: tuple[float, float], exact: tuple[float, float]) -> None:
    assert wilson_interval(k, n) == pytest.approx(wilson, abs=5e-5)
    assert clopper_pearson(k, n) == pytest.approx(exact, abs=5e-5)


@given(COUNTS, CONFIDENCES)
def test_both_are_those_of_statsmodels(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts[0], sum(counts)
    for interval, method in ((wilson_interval, "wilson"), (clopper_pearson, "beta")):
        expected = proportion_confint(k, n, alpha=1 - confidence, method=method)
        assert interval(k, n, confidence) == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_clopper_pearson_of_a_million() -> None:
    for k in (0, 3, 500_001, 999_999, 1_000_000):
        expected = proportion_confint(k, 1_000_000, method="beta")
        assert clopper_pearson(k, 1_000_000) == pytest.approx(expected, rel=1e-6)


# By hand: a bound is where the binomial tail is 2.5 %. For 0 of n that is 1 - 0.025^(1/n), for n of n 0.025^(1/n).
@pytest.mark.parametrize("n", [1, 2, 10, 1_000])
def test_clopper_pearson_at_the_ends_by_hand(n: int) -> None:
    assert clopper_pearson(0, n) == pytest.approx((0, 1 - 0.025 ** (1 / n)))
    assert clopper_pearson(n, n) == pytest.approx((0.025 ** (1 / n), 1))


@given(COUNTS, CONFIDENCES, st.integers(2, 20))
def test_intervals_hold_the_rate_inside_0_to_1_and_shrink(
    counts: tuple[int, int], confidence: float, times: int
) -> None:
    k, n = counts[0], sum(counts)
    for interval in (wilson_interval, clopper_pearson):
        low, high = interval(k, n, confidence)
        assert 0 <= low <= k / n <= high <= 1
        low_of_more, high_of_more = interval(k * times, n * times, confidence)
        assert high_of_more - low_of_more < high - low


@given(COUNTS)
def test_failures_have_the_mirrored_interval(counts: tuple[int, int]) -> None:
    for interval in (wilson_interval, clopper_pearson):
        low, high = interval(counts[0], sum(counts))
        assert interval(counts[1], sum(counts)) == pytest.approx((1 - high, 1 - low))


def test_no_cases_say_nothing() -> None:
    assert wilson_interval(0, 0) == clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, -1), (nan, 5), (1, inf), (0.5, 5), (1, 2.5)])
def test_what_is_no_count_is_refused(k: float, n: float) -> None:
    for interval in (wilson_interval, clopper_pearson):
        with pytest.raises(ValueError, match=r"^[kn]: expected"):
            interval(k, n)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, nan])
def test_what_is_no_confidence_is_refused(confidence: float) -> None:
    for interval in (wilson_interval, clopper_pearson):
        with pytest.raises(ValueError, match=r"confidence: expected a number between 0 and 1"):
            interval(1, 2, confidence)


# By hand: 1 / (1 + z²) and z² / (20 + z²), where z² is 3.8415.
@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        (1, 1, 0.2065, 1),
        (0, 20, 0.0, 0.1611),
    ],
)
def test_wilson_by_hand(successes: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_wilson_solves_its_equation(successes: int, failures: int) -> None:
    total = successes + failures
    for bound in wilson_interval(successes, total):
        # A bound is the rate from which the observed one lies just z standard errors away.
        distance = abs(successes / total - bound) / (bound * (1 - bound) / total) ** 0.5
        assert distance == pytest.approx(1.959964, rel=1e-5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_widens_with_confidence(successes: int, failures: int) -> None:
    low, high = wilson_interval(successes, successes + failures, 0.95)
    wide_low, wide_high = wilson_interval(successes, successes + failures, 0.99)
    assert wide_low <= low and high <= wide_high


# Chen et al., "Evaluating Large Language Models Trained on Code" (2021), figure 3: the product of the numbers
# 1 - k / i for i from n - c + 1 to n.
@given(st.integers(1, 200), st.data())
def test_pass_at_k_is_the_estimator_of_humaneval(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    product = prod((1 - Fraction(k, i) for i in range(n - c + 1, n + 1)), start=Fraction(1))
    expected = 1.0 if n - c < k else float(1 - product)
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)
    # At least one of k passes unless all of k fail.
    assert pass_hat_k(n, n - c, k) == pytest.approx(1 - pass_at_k(n, c, k), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, 1, 6), (5, 1, 0), (0, 0, 1), (-1, 0, 1), (5, nan, 1)])
def test_pass_at_k_refuses_what_cannot_be(n: int, c: int, k: int) -> None:
    for chance in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match=r"^[nck]: expected"):
            chance(n, c, k)
