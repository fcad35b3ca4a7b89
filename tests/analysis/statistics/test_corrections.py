"""Corrections for several tests: published values, statsmodels as oracle, and their laws."""

from __future__ import annotations

from math import nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from evalloom.analysis.statistics import benjamini_hochberg, holm

pytestmark = pytest.mark.req("WORK-10")
PVALUES = st.lists(st.floats(0, 1), max_size=30)

# Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57 (1995), section 3.2: thrombolysis after
# myocardial infarction. At 5 % their procedure rejects the four smallest, Bonferroni's and Hochberg's the three smallest.
INFARCTION = [
    0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0,
]  # fmt: skip


def test_the_p_values_of_benjamini_and_hochberg() -> None:
    adjusted = benjamini_hochberg(INFARCTION)
    assert [value <= 0.05 for value in adjusted] == [True] * 4 + [False] * 11
    assert adjusted[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625])
    assert sum(value <= 0.05 for value in holm(INFARCTION)) == 3


def test_holms_p_values_are_those_that_r_gives() -> None:
    assert holm([0.01, 0.04, 0.03, 0.02, 0.05]) == pytest.approx([0.05, 0.09, 0.09, 0.08, 0.09])
    assert holm([]) == [] and holm([0.6, 0.7]) == [1, 1]


@settings(max_examples=20)  # statsmodels takes long over Holm's
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_both_are_those_of_statsmodels(pvalues: list[float]) -> None:
    assert holm(pvalues) == pytest.approx(multipletests(pvalues, method="holm")[1].tolist())
    assert benjamini_hochberg(pvalues) == pytest.approx(multipletests(pvalues, method="fdr_bh")[1].tolist())


@given(PVALUES)
def test_a_correction_raises_p_values_and_holms_raises_them_more(pvalues: list[float]) -> None:
    for raw, low, high in zip(pvalues, benjamini_hochberg(pvalues), holm(pvalues), strict=True):
        assert raw <= low <= high <= 1


@given(PVALUES)
def test_corrected_p_values_keep_their_order(pvalues: list[float]) -> None:
    for correct in (holm, benjamini_hochberg):
        pairs = sorted(zip(pvalues, correct(pvalues), strict=True))
        assert [adjusted for _, adjusted in pairs] == sorted(adjusted for _, adjusted in pairs)


@given(PVALUES, st.randoms(use_true_random=False))
def test_corrections_do_not_depend_on_the_order_of_tests(pvalues: list[float], random: Random) -> None:
    order = random.sample(range(len(pvalues)), len(pvalues))
    for correct in (holm, benjamini_hochberg):
        adjusted = correct(pvalues)
        assert correct([pvalues[place] for place in order]) == [adjusted[place] for place in order]


@pytest.mark.parametrize("value", [-0.01, 1.01, nan])
def test_what_is_no_p_value_is_refused(value: float) -> None:
    for correct in (holm, benjamini_hochberg):
        with pytest.raises(ValueError, match="pvalues: expected a number from 0 to 1, got"):
            correct([0.5, value])
