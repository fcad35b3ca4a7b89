"""Percentiles, means and standard errors: against scipy and statsmodels, by hand, and their laws."""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS

from evalloom.analysis.statistics import clustered_standard_error, mean, percentile, standard_error

finite = st.floats(-1e9, 1e9)
VALUES = st.lists(st.integers(-100, 100).map(float), min_size=2, max_size=40)


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


# By hand: the mean of 1, 2, 3, 4 is 2.5 and the squares of what is left add up to 5; √(5 / 3 / 4).
@pytest.mark.req("WORK-10")
def test_the_standard_error_by_hand() -> None:
    assert standard_error([1, 2, 3, 4]) == pytest.approx(sqrt(5 / 12))
    assert standard_error([7, 7]) == 0


@pytest.mark.req("WORK-10")
@given(VALUES)
def test_the_standard_error_is_that_of_scipy(values: list[float]) -> None:
    assert standard_error(values) == pytest.approx(float(stats.sem(values)), abs=1e-12)


# By hand: the residuals of 1, 1, 3, 3 add up to -2 and 2 by pair; √((4 + 4) · 2 / 1) / 4 = 1. One by one it is
# √(4 / 3 / 4): pairs that are alike count as one.
@pytest.mark.req("WORK-10")
def test_the_clustered_standard_error_by_hand() -> None:
    assert clustered_standard_error([1, 1, 3, 3], "aabb") == pytest.approx(1)
    assert clustered_standard_error([1, 1, 3, 3], "abab") == 0
    assert standard_error([1, 1, 3, 3]) == pytest.approx(sqrt(1 / 3))


@pytest.mark.req("WORK-10")
@given(VALUES, st.data())
def test_the_clustered_standard_error_is_that_of_statsmodels(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.integers(0, 5), min_size=len(values) - 2, max_size=len(values) - 2))
    clusters = [0, 1, *others]
    fitted = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": np.array(clusters)})
    assert clustered_standard_error(values, clusters) == pytest.approx(float(fitted.bse[0]), abs=1e-9)


@pytest.mark.req("WORK-10")
@given(VALUES)
def test_clusters_of_one_change_nothing_and_order_does_not_matter(values: list[float]) -> None:
    assert clustered_standard_error(values, range(len(values))) == pytest.approx(standard_error(values), abs=1e-12)
    pairs = [(value, number % 3) for number, value in enumerate([*values, 1.0])]
    shuffled = pairs[::-1]
    assert clustered_standard_error(*zip(*pairs, strict=True)) == pytest.approx(
        clustered_standard_error(*zip(*shuffled, strict=True)), abs=1e-12
    )


@pytest.mark.req("WORK-10")
def test_standard_errors_refuse_what_shows_no_spread() -> None:
    for values in ([], [1.0], [1, nan], [1, inf]):
        with pytest.raises(ValueError, match="values: expected"):
            standard_error(values)
    with pytest.raises(ValueError, match="one for each of the 2 values"):
        clustered_standard_error([1, 2], ["a"])
    with pytest.raises(ValueError, match="at least two different ones"):
        clustered_standard_error([1, 2], ["a", "a"])
