"""The distributions that the tests and intervals use, against scipy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalloom.analysis.statistics.distributions import beta_quantile, chi2_tail, student_95, z_value

pytestmark = pytest.mark.req("WORK-10")


@given(st.floats(0, 3_000), st.integers(1, 2_000))
def test_the_chi_squared_tail_is_that_of_scipy(value: float, freedom: int) -> None:
    assert chi2_tail(value, freedom) == pytest.approx(float(stats.chi2.sf(value, freedom)), rel=1e-9, abs=1e-300)


@given(st.floats(0.001, 0.999), st.integers(1, 5_000), st.integers(1, 5_000))
def test_the_beta_quantile_is_that_of_scipy(share: float, a: int, b: int) -> None:
    assert beta_quantile(share, a, b) == pytest.approx(float(stats.beta.ppf(share, a, b)), rel=1e-8)


@given(st.floats(0.01, 0.9999))
def test_the_normal_quantile_is_that_of_scipy(confidence: float) -> None:
    assert z_value(confidence) == pytest.approx(float(stats.norm.ppf((1 + confidence) / 2)), rel=1e-9)
    assert z_value() == pytest.approx(float(stats.norm.ppf(0.975)), rel=1e-12)


@pytest.mark.parametrize("freedom", [4, 10, 100, 10_000])
def test_students_quantile_is_that_of_scipy(freedom: int) -> None:
    assert student_95(freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), abs=0.01)
