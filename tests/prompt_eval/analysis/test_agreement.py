"""Agreement of judge and people: known values, an independent formula, and the laws that kappa obeys."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evalloom.prompt_eval.analysis.agreement import (
    Confusion,
    agreement,
    confusion,
    kappa_interval,
    noise,
    weighted_kappa,
)
from evalloom.prompt_eval.scores import Mark, ScoredCase

pytestmark = pytest.mark.req("EVAL-16")
PAIRS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=60)


def scored(number: int, score: int | None, result: str | None = "x") -> ScoredCase:
    return ScoredCase({"test_id": f"TC{number:03d}", "result_aftertest": result}, {"TP1": Mark(score, "why")})


def concordance(pairs: list[tuple[int, int]]) -> float:
    """Lin's coefficient, which the quadratic kappa is equal to."""
    n = len(pairs)
    one, two = (sum(pair[side] for pair in pairs) / n for side in (0, 1))
    together = sum((a - one) * (b - two) for a, b in pairs) / n
    spread = sum((a - one) ** 2 + (b - two) ** 2 for a, b in pairs) / n
    return 2 * together / (spread + (one - two) ** 2)


def kappa_of(shares: list[float]) -> float:
    """Kappa from nine shares, straight from its definition."""
    rows = [sum(shares[3 * i : 3 * i + 3]) for i in range(3)]
    columns = [sum(shares[j::3]) for j in range(3)]
    seen = sum(shares[3 * i + j] * (i - j) ** 2 for i in range(3) for j in range(3))
    chance = sum(rows[i] * columns[j] * (i - j) ** 2 for i in range(3) for j in range(3))
    return 1 - seen / chance


def variance_by_derivatives(table: list[list[float]]) -> float:
    """The delta method with derivatives taken numerically."""
    counts = [count for row in table for count in row]
    total = sum(counts)
    shares = [count / total for count in counts]
    step = 1e-6
    slopes = []
    for place in range(9):
        up = [share + step * (at == place) for at, share in enumerate(shares)]
        down = [share - step * (at == place) for at, share in enumerate(shares)]
        # Kappa of shares that do not add up to 1 is that of the shares divided by their sum.
        slopes.append(
            (kappa_of([one / (1 + step) for one in up]) - kappa_of([one / (1 - step) for one in down])) / (2 * step)
        )
    mean = sum(share * slope for share, slope in zip(shares, slopes, strict=True))
    return sum(share * (slope - mean) ** 2 for share, slope in zip(shares, slopes, strict=True)) / total


def test_a_value_computed_by_hand() -> None:
    """Three of ten cases are one step apart: 10 · 3 = 30. By chance it is the products of the margins 3 3 4 and 2 4 4."""
    table: Confusion = ((2, 1, 0), (0, 2, 1), (0, 1, 3))
    # 3·4·1 + 3·4·4 + 3·2·1 + 3·4·1 + 4·2·4 + 4·4·1 = 126
    assert weighted_kappa(table) == pytest.approx(1 - 30 / 126)


def test_figures_of_one_point() -> None:
    humans = {f"TC{n:03d}": {"TP1": score} for n, score in enumerate((3, 3, 2, 1), 1)}
    (found,) = agreement([scored(1, 3), scored(2, 2), scored(3, 2), scored(4, 2)], humans, ["TP1", "TP2"])
    assert found.confusion == ((0, 1, 0), (0, 1, 0), (0, 1, 1))
    assert (found.cases, found.agreed, found.exact, found.bias) == (4, 2, 0.5, 0.0)
    assert found.exact_interval == pytest.approx((0.15, 0.85), abs=0.001)


def test_only_cases_that_both_scored_count() -> None:
    humans = {"TC001": {"TP1": 3}, "TC002": {"TP1": 3}, "TC003": {"TP1": 1}, "TC009": {"TP1": 1}, "TC004": {"TP2": 1}}
    (found,) = agreement([scored(1, 3), scored(2, None), scored(3, 1, None), scored(4, 3)], humans, ["TP1"])
    assert found.cases == 1
    assert agreement([scored(1, 3)], {}, ["TP1"]) == ()


@pytest.mark.parametrize("pairs", [[], [(1, 3)], [(3, 3)] * 20])
def test_nothing_to_estimate_is_none_and_never_nan(pairs: list[tuple[int, int]]) -> None:
    assert weighted_kappa(confusion(pairs)) is None
    assert kappa_interval(confusion(pairs)) is None


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize("pairs", [[(1, 1), (2, 2), (3, 3)], [(3, 1), (3, 2), (3, 3)], [(1, 3), (3, 1)]])
def test_few_cases_without_visible_variance_do_not_close_the_interval(pairs: list[tuple[int, int]]) -> None:
    kappa, interval = weighted_kappa(confusion(pairs)), kappa_interval(confusion(pairs))
    assert kappa is not None and interval is not None
    assert interval[0] <= kappa <= interval[1] and interval[1] - interval[0] > 0.5


@pytest.mark.req("WORK-4")
def test_the_interval_is_that_of_the_delta_method_with_two_cases_added() -> None:
    table = ((8, 3, 1), (2, 11, 4), (0, 3, 18))
    interval = kappa_interval(table)
    padded = [[count + 1 / 9 + (i == j) / 3 for j, count in enumerate(row)] for i, row in enumerate(table)]
    kappa = kappa_of([count / 52 for row in padded for count in row])
    assert interval is not None and sum(map(sum, padded)) == pytest.approx(52)
    half = 1.959964 * math.sqrt(variance_by_derivatives(padded)) / (1 - kappa**2)
    assert interval == pytest.approx(
        (math.tanh(math.atanh(kappa) - half), math.tanh(math.atanh(kappa) + half)), abs=1e-4
    )


@pytest.mark.req("WORK-4")
@pytest.mark.parametrize(("cases", "least"), [(10, 0.9), (30, 0.92)])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 0.8])
def test_the_interval_holds_the_true_kappa_often_enough(cases: int, least: float, kappa: float) -> None:
    """The judge gives the person's score with the chance kappa, and otherwise guesses: that has this kappa."""
    random, margin, held, samples = Random(7), (0.1, 0.2, 0.7), 0, 600
    for _ in range(samples):
        people = random.choices((1, 2, 3), margin, k=cases)
        guesses = random.choices((1, 2, 3), margin, k=cases)
        judge = [one if random.random() < kappa else guess for one, guess in zip(people, guesses, strict=True)]
        low, high = kappa_interval(confusion(zip(people, judge, strict=True))) or (-1, 1)
        held += low <= kappa <= high
    assert held >= least * samples


@pytest.mark.req("WORK-4")
def test_perfect_agreement_of_more_cases_is_surer() -> None:
    lows = [(kappa_interval(((n, 0, 0), (0, n, 0), (0, 0, n))) or (0, 0))[0] for n in (1, 3, 10, 100)]
    assert lows == sorted(lows) and lows[0] < 0.3 and 0.9 < lows[-1] < 1


@given(PAIRS)
def test_kappa_is_the_concordance_and_at_most_1(pairs: list[tuple[int, int]]) -> None:
    kappa = weighted_kappa(confusion(pairs))
    assume(kappa is not None)
    assert kappa == pytest.approx(concordance(pairs), abs=1e-9)
    assert kappa is not None and -1 <= kappa <= 1


@given(PAIRS)
def test_perfect_agreement_is_1_exactly(pairs: list[tuple[int, int]]) -> None:
    kappa = weighted_kappa(confusion((one, one) for one, _ in pairs))
    assert kappa in (None, 1)


@given(PAIRS)
def test_swapping_the_raters_keeps_kappa_and_its_interval(pairs: list[tuple[int, int]]) -> None:
    table, swapped = confusion(pairs), confusion((two, one) for one, two in pairs)
    assert weighted_kappa(table) == weighted_kappa(swapped)
    assert (kappa_interval(table) or (0, 0)) == pytest.approx(kappa_interval(swapped) or (0, 0))


@given(PAIRS)
def test_the_interval_holds_kappa_and_stays_within_1(pairs: list[tuple[int, int]]) -> None:
    table = confusion(pairs)
    kappa, interval = weighted_kappa(table), kappa_interval(table)
    assume(kappa is not None and interval is not None)
    assert kappa is not None and interval is not None
    assert -1 <= interval[0] <= kappa <= interval[1] <= 1


def test_noise_of_repeated_scoring() -> None:
    repeats: dict[str, list[dict[str, int | None]]] = {
        "TC001": [{"TP1": 3, "TP2": 3}, {"TP1": 3, "TP2": 1}, {"TP1": 3, "TP2": 3}],
        "TC002": [{"TP1": 2, "TP2": None}, {"TP1": 3, "TP2": 2}],
        "TC003": [{"TP1": 1, "TP2": 2}],
    }
    one, two = noise(repeats, ["TP1", "TP2", "TP3"])
    assert (one.point, one.cases, one.stable, one.share, one.mean_range) == ("TP1", 2, 1, 0.5, 0.5)
    assert (two.cases, two.stable, two.mean_range) == (1, 0, 2.0)
    assert one.interval == pytest.approx((0.0945, 0.9055), abs=1e-4)
