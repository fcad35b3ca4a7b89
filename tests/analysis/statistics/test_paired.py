"""Tests and intervals over the same cases: published values, scipy and statsmodels as oracles, and their laws."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb, inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import cochrans_q, mcnemar

from evalloom.analysis.statistics import (
    cochran_q,
    mcnemar_chi2,
    mcnemar_exact,
    paired_difference,
    paired_mean_interval,
    permutation_test,
    permuted_variance,
)

COUNT = st.integers(0, 400)


# By hand: 2 · (C(5,0) + C(5,1)) / 2⁵ = 0.375; 2 / 2⁶ = 0.03125; 2 · (1 + 10 + 45) / 2¹⁰ = 0.109375.
@pytest.mark.req("HOP-20")
@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(4, 1, 0.375), (0, 6, 0.03125), (8, 2, 0.109375), (3, 3, 1), (0, 0, 1), (1, 0, 1)]
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar_exact(gained, lost) == pytest.approx(p)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_binomial_tail(gained: int, lost: int) -> None:
    total = gained + lost
    tail = sum(comb(total, number) for number in range(min(gained, lost) + 1))
    assert mcnemar_exact(gained, lost) == pytest.approx(min(1.0, float(Fraction(2 * tail, 2**total))), rel=1e-9)


def test_mcnemar_of_a_million_is_quick() -> None:
    # A z of 2 by the normal approximation.
    assert mcnemar_exact(501_000, 499_000) == pytest.approx(0.0455, abs=1e-3)


# 3 gained, 1 lost, 8 in all: (4 - 2) / 10 ± 1.96 · √((0.6 - 0.04) / 10), which is 0.2 ± 0.4638.
@pytest.mark.req("HOP-20")
def test_paired_difference_by_hand() -> None:
    assert paired_difference(3, 1, 8) == pytest.approx((-0.2638, 0.6638), abs=5e-5)
    assert paired_difference(0, 0, 0) == (-1.0, 1.0)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_paired_difference_turns_round_with_its_sides(gained: int, lost: int, same: int) -> None:
    total = gained + lost + same
    low, high = paired_difference(gained, lost, total)
    assert paired_difference(lost, gained, total) == pytest.approx((-high, -low))
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


# Agresti, Categorical Data Analysis (1990), p. 350: approval of the president's performance in two surveys. 150 of
# 1600 approved in the first only and 86 in the second only: z² = 64² / 236.
@pytest.mark.req("WORK-10")
def test_mcnemar_chi2_of_the_approval_ratings() -> None:
    assert mcnemar_chi2(86, 150, continuity=False) == pytest.approx((17.36, 3.1e-5), rel=5e-3)
    # With continuity by hand: 63² / 236.
    assert mcnemar_chi2(86, 150)[0] == pytest.approx(16.8178, abs=5e-5)


# Fagerland, Lydersen and Laake, "The McNemar test for binary matched-pairs data", BMC Medical Research Methodology 13:91
# (2013): airway hyper-responsiveness of 21 children before and after stem cell transplantation (Bentur et al. 2009).
@pytest.mark.req("WORK-10")
def test_mcnemars_tests_of_fagerland() -> None:
    assert mcnemar_chi2(1, 7, continuity=False)[1] == pytest.approx(0.034, abs=5e-4)
    assert mcnemar_chi2(1, 7)[1] == pytest.approx(0.077, abs=5e-4)
    assert mcnemar_exact(1, 7) == pytest.approx(0.070, abs=5e-4)


@pytest.mark.req("WORK-10")
@given(COUNT, COUNT)
def test_mcnemars_tests_are_those_of_statsmodels(b: int, c: int) -> None:
    table = [[0, b], [c, 0]]
    assert mcnemar_exact(b, c) == pytest.approx(float(mcnemar(table, exact=True).pvalue), rel=1e-9)
    if b != c:  # There statsmodels "corrects" a difference of 0 to -1, and R and we do not.
        for continuity in (True, False):
            expected = mcnemar(table, exact=False, correction=continuity)
            assert mcnemar_chi2(b, c, continuity) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


@pytest.mark.req("WORK-10")
@given(COUNT, COUNT)
def test_mcnemars_tests_do_not_depend_on_the_order_of_the_sides(b: int, c: int) -> None:
    assert mcnemar_exact(b, c) == mcnemar_exact(c, b) and 0 <= mcnemar_exact(b, c) <= 1
    assert mcnemar_chi2(b, c) == mcnemar_chi2(c, b) and 0 <= mcnemar_chi2(b, c)[1] <= 1
    assert mcnemar_chi2(b, c)[1] >= mcnemar_chi2(b, c, continuity=False)[1]


@pytest.mark.req("WORK-10")
@pytest.mark.parametrize(("b", "c"), [(-1, 0), (nan, 1), (1, inf), (0.5, 1)])
def test_mcnemars_tests_refuse_what_is_no_count(b: float, c: float) -> None:
    for test in (mcnemar_exact, mcnemar_chi2):
        with pytest.raises(ValueError, match=r"^[bc]: expected a whole number from 0 on"):
            test(b, c)  # type: ignore[arg-type]
    assert mcnemar_chi2(0, 0) == mcnemar_chi2(3, 3) == (0.0, 1.0)


# Bonett's R package statpsych documents ci.prop.ps(.05, 12, 4, 26, 6), the interval of Bonett and Price, "Adjusted Wald
# confidence interval for a difference of binomial proportions based on paired data", JEBS 37 (2012), as
# 0.2548067 to 0.6251933. The second by hand, for the children above: -6/23 ± 1.96 · √((10/23 - (6/23)²) / 23).
@pytest.mark.req("WORK-10")
def test_the_paired_difference_of_bonett_and_price() -> None:
    assert paired_difference(26, 4, 48) == pytest.approx((0.2548067, 0.6251933), abs=5e-8)
    assert paired_difference(1, 7, 21) == pytest.approx((-0.50836, -0.01338), abs=5e-6)


@pytest.mark.req("WORK-10")
@given(COUNT, COUNT, COUNT, st.integers(2, 20))
def test_the_paired_difference_shrinks_with_cases_and_widens_with_confidence(
    gained: int, lost: int, same: int, times: int
) -> None:
    cases = gained + lost + same
    low, high = paired_difference(gained, lost, cases)
    assert (low, high) == paired_mean_interval(gained - lost, gained + lost, cases)
    wide_low, wide_high = paired_difference(gained, lost, cases, 0.99)
    assert wide_low <= low and high <= wide_high
    if cases:
        low_of_more, high_of_more = paired_difference(gained * times, lost * times, cases * times)
        assert high_of_more - low_of_more < high - low


@pytest.mark.req("WORK-10")
def test_the_paired_difference_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least gained \\+ lost, which is 9, got 8"):
        paired_difference(5, 4, 8)
    for counts in ((-1, 0, 5), (0, nan, 5), (0, 0, inf)):
        with pytest.raises(ValueError, match="expected a whole number from 0 on"):
            paired_difference(*counts)


# Conover, Practical Nonparametric Statistics, as shown in NIST's Dataplot manual ("Cochran test"): three sportsmen
# predict the outcome of twelve basketball games. Q = 2.8, p = 0.246597.
@pytest.mark.req("WORK-10")
def test_cochrans_q_of_conover() -> None:
    games = ["111", "111", "010", "110", "000", "111", "111", "110", "001", "010", "111", "111"]
    assert cochran_q([[int(hit) for hit in game] for game in games]) == pytest.approx((2.8, 0.246597), abs=5e-7)


@st.composite
def passes(draw: st.DrawFn, most: int = 6) -> list[list[int]]:
    width = draw(st.integers(2, most))
    return draw(st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=40))


@pytest.mark.req("WORK-10")
@given(passes(most=12))
def test_cochrans_q_is_that_of_statsmodels(table: list[list[int]]) -> None:
    if all(sum(row) in (0, len(row)) for row in table):
        assert cochran_q(table) == (0.0, 1.0)
    else:
        expected = cochrans_q(table)
        assert cochran_q(table) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9, abs=1e-12)
    assert 0 <= cochran_q(table)[1] <= 1


@pytest.mark.req("WORK-10")
@given(passes(), st.randoms(use_true_random=False))
def test_cochrans_q_does_not_depend_on_the_order_of_cases_or_systems(table: list[list[int]], random: Random) -> None:
    order = random.sample(range(len(table[0])), len(table[0]))
    shuffled = [[row[place] for place in order] for row in random.sample(table, len(table))]
    assert cochran_q(shuffled) == cochran_q(table)


@pytest.mark.req("WORK-10")
@given(passes(most=2))
def test_cochrans_q_of_two_is_mcnemars(table: list[list[int]]) -> None:
    expected = mcnemar_chi2(table.count([1, 0]), table.count([0, 1]), continuity=False)
    assert cochran_q(table) == pytest.approx(expected)


@pytest.mark.req("WORK-10")
@pytest.mark.parametrize("table", [[], [[]], [[1]], [[1, 0], [1]], [[2, 0]], [[nan, 1]], [[-1, 0]]])
def test_cochrans_q_refuses_other_tables(table: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="table: expected"):
        cochran_q(table)
