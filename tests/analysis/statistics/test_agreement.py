"""Kappas and alpha: published values, statsmodels as oracle, and their laws."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats import inter_rater

from evalloom.analysis.statistics import cohen_kappa, fleiss_kappa, krippendorff_alpha
from evalloom.analysis.statistics.agreement import Level, Weights

pytestmark = pytest.mark.req("WORK-10")
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval", "ratio")
RANDOM = st.randoms(use_true_random=False)


@st.composite
def tables(draw: st.DrawFn) -> list[list[int]]:
    """Square tables of counts."""
    size = draw(st.integers(2, 6))
    row = st.lists(st.integers(0, 30), min_size=size, max_size=size)
    return draw(st.lists(row, min_size=size, max_size=size))


@st.composite
def ratings(draw: st.DrawFn) -> list[list[int]]:
    """How many of the same number of raters put a subject into each category."""
    raters, categories = draw(st.integers(2, 6)), draw(st.integers(2, 5))
    subject = st.lists(st.integers(0, categories - 1), min_size=raters, max_size=raters)
    subjects = draw(st.lists(subject, min_size=1, max_size=20))
    return [[subject.count(category) for category in range(categories)] for subject in subjects]


UNITS = st.lists(st.lists(st.none() | st.integers(0, 5), min_size=2, max_size=5), min_size=1, max_size=15)


# Cohen, "Weighted kappa", Psychological Bulletin 70 (1968): two judges sort 200 cases into personality disorder,
# neurosis and psychosis. Kappa is .492.
def test_cohens_kappa_of_cohen() -> None:
    assert cohen_kappa([[88, 14, 18], [10, 40, 10], [2, 6, 12]]) == pytest.approx(0.492, abs=5e-4)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
@given(table=tables())
def test_cohens_kappa_is_that_of_statsmodels(table: list[list[int]], weights: Weights | None) -> None:
    kappa = cohen_kappa(table, weights)
    if kappa is not None:
        # By name: without one it takes two categories for ordered.
        expected = inter_rater.cohens_kappa(table, wt=weights, return_results=False)
        assert kappa == pytest.approx(float(expected), abs=1e-9)
        assert -1 <= kappa <= 1


@given(tables(), RANDOM)
def test_cohens_kappa_does_not_depend_on_labels_or_the_order_of_raters(table: list[list[int]], random: Random) -> None:
    order = random.sample(range(len(table)), len(table))
    assert cohen_kappa([[table[i][j] for j in order] for i in order]) == cohen_kappa(table)
    reversed_table = [row[::-1] for row in table[::-1]]
    for weights in (None, "linear", "quadratic"):
        transposed = [list(column) for column in zip(*table, strict=True)]
        assert cohen_kappa(transposed, weights) == cohen_kappa(table, weights)
        assert cohen_kappa(reversed_table, weights) == cohen_kappa(table, weights)


def test_cohens_kappa_of_perfect_agreement_of_no_agreement_and_of_chance() -> None:
    for weights in (None, "linear", "quadratic"):
        assert cohen_kappa([[7, 0, 0], [0, 3, 0], [0, 0, 1]], weights) == 1
        assert cohen_kappa([[0, 5], [5, 0]], weights) == -1
        assert cohen_kappa([[4, 8], [2, 4]], weights) == 0


def test_kappas_of_a_single_category_and_of_no_cases_are_none() -> None:
    assert cohen_kappa([[9, 0], [0, 0]]) is None and cohen_kappa([[9]]) is None
    assert cohen_kappa([[0, 0], [0, 0]]) is None
    assert fleiss_kappa([[3, 0], [3, 0]]) is None and fleiss_kappa([[3]]) is None


@pytest.mark.parametrize("table", [[], [[]], [[1, 2]], [[1, 2], [3]], [[1, -1], [0, 1]], [[1, nan], [0, 1]], [[inf]]])
def test_cohens_kappa_refuses_other_tables(table: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="table: expected"):
        cohen_kappa(table)
    with pytest.raises(ValueError, match="weights: expected None, 'linear' or 'quadratic', got 'cubic'"):
        cohen_kappa([[1, 0], [0, 1]], "cubic")  # type: ignore[arg-type]


# Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76 (1971): six
# psychiatrists each sort 30 patients into depression, personality disorder, schizophrenia, neurosis and other.
PATIENTS = """
    00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
    00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""


def test_fleiss_kappa_of_fleiss() -> None:
    table = [[int(count) for count in patient] for patient in PATIENTS.split()]
    assert len(table) == 30 and fleiss_kappa(table) == pytest.approx(0.430, abs=5e-4)


@given(ratings())
def test_fleiss_kappa_is_that_of_statsmodels(table: list[list[int]]) -> None:
    kappa = fleiss_kappa(table)
    if kappa is not None:
        assert kappa == pytest.approx(float(inter_rater.fleiss_kappa(table)), abs=1e-9)
        assert kappa <= 1


@given(ratings(), RANDOM)
def test_fleiss_kappa_does_not_depend_on_labels_or_the_order_of_subjects(
    table: list[list[int]], random: Random
) -> None:
    order = random.sample(range(len(table[0])), len(table[0]))
    shuffled = [[row[place] for place in order] for row in random.sample(table, len(table))]
    assert fleiss_kappa(shuffled) == fleiss_kappa(table)


def test_fleiss_kappa_of_perfect_agreement() -> None:
    assert fleiss_kappa([[3, 0, 0], [0, 3, 0], [0, 0, 3]]) == 1


@pytest.mark.parametrize("table", [[], [[]], [[2, 1], [1, 1]], [[1, 0]], [[0, 0]], [[1.5, 0.5]], [[-1, 3]], [[nan, 2]]])
def test_fleiss_kappa_refuses_other_tables(table: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="table: expected"):
        fleiss_kappa(table)


# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C and its other levels: four observers, twelve
# units, missing data. A row here is an observer.
OBSERVED: list[list[int | None]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_alpha_of_krippendorff(level: Level, alpha: float) -> None:
    assert krippendorff_alpha([*zip(*OBSERVED, strict=True)], level) == pytest.approx(alpha, abs=5e-4)


def alpha_by_definition(units: list[list[int | None]], level: Level) -> float:
    """One less the mean distance of values within units over that of any two values, from all ordered pairs."""
    rated = [kept for unit in units if len(kept := [value for value in unit if value is not None]) > 1]
    pool = [value for unit in rated for value in unit]

    def distance(a: int, b: int) -> Fraction:
        if a == b:
            return Fraction(0)
        between = sum(Fraction(pool.count(value)) for value in range(min(a, b), max(a, b) + 1))
        return {
            "nominal": Fraction(1),
            "ordinal": (between - Fraction(pool.count(a) + pool.count(b), 2)) ** 2,
            "interval": Fraction(a - b) ** 2,
            "ratio": Fraction(a - b, a + b) ** 2,
        }[level]

    within = sum(sum(distance(a, b) for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in rated)
    among = sum(distance(a, b) for a, b in permutations(pool, 2)) / (len(pool) - 1)
    return float(1 - within / among)


@pytest.mark.parametrize("level", LEVELS)
@given(units=UNITS)
def test_alpha_is_that_of_its_definition(units: list[list[int | None]], level: Level) -> None:
    alpha = krippendorff_alpha(units, level)
    if alpha is not None:
        assert alpha == pytest.approx(alpha_by_definition(units, level), abs=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@given(units=UNITS, random=RANDOM)
def test_alpha_does_not_depend_on_the_order_of_units_or_raters(
    units: list[list[int | None]], random: Random, level: Level
) -> None:
    shuffled = [random.sample(unit, len(unit)) for unit in random.sample(units, len(units))]
    alpha, other = krippendorff_alpha(units, level), krippendorff_alpha(shuffled, level)
    assert (alpha is None and other is None) or other == pytest.approx(alpha, abs=1e-12)


@given(UNITS)
def test_alpha_of_names_is_that_of_numbers(units: list[list[int | None]]) -> None:
    named = [[None if value is None else f"name {value}" for value in unit] for unit in units]
    assert krippendorff_alpha(named) == krippendorff_alpha(units)


@given(UNITS)
def test_alpha_of_an_interval_scale_does_not_depend_on_its_unit_or_zero(units: list[list[int | None]]) -> None:
    moved = [[None if value is None else 32 + 1.8 * value for value in unit] for unit in units]
    alpha, other = krippendorff_alpha(units, "interval"), krippendorff_alpha(moved, "interval")
    assert (alpha is None and other is None) or other == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize("level", LEVELS)
def test_alpha_of_perfect_agreement_is_1(level: Level) -> None:
    assert krippendorff_alpha([[1, 1, None], [2, 2, 2], [None, 5, 5], [7, None, None]], level) == 1


@pytest.mark.parametrize("units", [[], [[]], [[1, None], [None, 2]], [[3, 3], [3, 3]]])
def test_alpha_without_anything_to_compare_is_none(units: list[list[int | None]]) -> None:
    assert [krippendorff_alpha(units, level) for level in LEVELS] == [None] * 4


@pytest.mark.parametrize(
    ("units", "level"),
    [([[1, nan]], "nominal"), ([[1, inf]], "interval"), ([["a", "b"]], "ordinal"), ([[-1, 1]], "ratio")],
)
def test_alpha_refuses_what_is_not_of_its_level(units: list[list[Any]], level: Level) -> None:
    with pytest.raises(ValueError, match="units: expected"):
        krippendorff_alpha(units, level)
    with pytest.raises(ValueError, match="level: expected"):
        krippendorff_alpha(units, "cardinal")  # type: ignore[arg-type]
