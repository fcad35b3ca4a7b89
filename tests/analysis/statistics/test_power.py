"""The cases that a comparison needs: a published value, simulated power, and the laws."""

from __future__ import annotations

import random
from math import inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evalloom.analysis.compare_figures import Sums
from evalloom.analysis.statistics import (
    cases_to_detect,
    detectable_drop,
    mcnemar_chi2,
    permuted_variance,
    required_cases,
)


# Chow, Shao and Wang, Sample Size Calculations in Clinical Research, 2nd ed. (2008), p. 89: rates of 65 % and 85 % need
# 70 in each of two independent groups, at 5 % two-sided and a power of 80 %.
@pytest.mark.req("WORK-10")
def test_required_cases_of_chow_shao_and_wang() -> None:
    assert required_cases(0.65, 0.20) == required_cases(0.85, -0.20) == 70


# By hand: (1.959964 + 0.841621)² · (0.25 + 0.24) / 0.01 = 384.6, and with (1.959964 + 1.281552)² it is 514.9. If a fifth
# of the cases turn: 7.848879 · (0.2 - 0.01) / 0.01 = 149.1.
@pytest.mark.req("WORK-10")
def test_required_cases_by_hand() -> None:
    assert required_cases(0.5, 0.1) == 385 and required_cases(0.5, 0.1, power=0.9) == 515
    assert required_cases(0.5, 0.1, discordant=0.2) == 150


@pytest.mark.req("WORK-10")
@pytest.mark.parametrize(("p", "effect", "discordant"), [(0.5, 0.1, None), (0.9, -0.1, None), (0.8, 0.05, 0.15)])
def test_the_required_cases_show_the_effect_in_four_of_five_comparisons(
    p: float, effect: float, discordant: float | None
) -> None:
    cases, after, chance = required_cases(p, effect, discordant=discordant), p + effect, random.Random(2026)
    both = after * (1 - p) if discordant is None else (discordant + effect) / 2
    weights = (both, both - effect, 1 - 2 * both + effect)
    rounds = [chance.choices("+-=", weights, k=cases) for _ in range(400)]
    shown = sum(mcnemar_chi2(one.count("+"), one.count("-"), continuity=False)[1] < 0.05 for one in rounds)
    assert 0.74 < shown / 400 < 0.86


# The cases that `compare` says it needs are the same formula, at the variance that it saw: 1,000 cases of which 200
# turned, half of them each way.
@pytest.mark.req("WORK-10")
def test_compare_asks_for_as_many_cases() -> None:
    seen = 202 / 1002
    assert cases_to_detect(0.05, 0, 200, 1_000) == required_cases(0.5, 0.05, discordant=seen + 0.05)


@pytest.mark.req("WORK-10")
@given(st.floats(0, 1), st.floats(-1, 1), st.floats(0.5, 0.98))
def test_larger_effects_need_fewer_cases_and_more_power_more(p: float, effect: float, power: float) -> None:
    assume(abs(effect) > 1e-3 and 0 <= p + effect <= 1)
    cases = required_cases(p, effect, power)
    assert cases >= 1 and required_cases(p, effect, power + 0.01) >= cases
    assert required_cases(1 - p, -effect, power) == pytest.approx(cases, abs=1)
    assert required_cases(p, effect, power, discordant=abs(effect)) <= required_cases(
        p, effect / 2, power, discordant=abs(effect)
    )


@pytest.mark.req("WORK-10")
@pytest.mark.parametrize("p", [-0.1, 1.1, nan, inf])
def test_required_cases_refuses_other_rates(p: float) -> None:
    with pytest.raises(ValueError, match="p: expected a number from 0 to 1"):
        required_cases(p, 0.1)


@pytest.mark.req("WORK-10")
def test_required_cases_refuses_what_cannot_be() -> None:
    for effect in (0, 0.6, -0.6, nan, inf):
        with pytest.raises(ValueError, match="effect: expected a change"):
            required_cases(0.5, effect)
    for power in (0, 1, nan):
        with pytest.raises(ValueError, match="power: expected"):
            required_cases(0.5, 0.1, power)
    with pytest.raises(ValueError, match="discordant: expected at least the change"):
        required_cases(0.5, 0.1, discordant=0.05)


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
