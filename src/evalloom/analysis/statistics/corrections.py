"""Corrections for several tests at once: adjusted p-values, in the order of the tests."""

from __future__ import annotations

from collections.abc import Sequence

from evalloom.analysis.statistics.arguments import check_share


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: if those of at most α count as findings, any false one has a chance of at most α.

    The more tests there are, the likelier one of them is significant by chance.
    """
    order, count = _smallest_first(pvalues), len(pvalues)
    adjusted, highest = [1.0] * count, 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, pvalues[index] * (count - place)))
        adjusted[index] = highest
    return adjusted


def benjamini_hochberg(pvalues: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values: of the findings at α, a share of at most α is false on average.

    That holds for tests that are independent or positively dependent. It is never more than Holm's.
    """
    order, count = _smallest_first(pvalues), len(pvalues)
    adjusted, lowest = [1.0] * count, 1.0
    for place in range(count, 0, -1):
        index = order[place - 1]
        # The ratio first: of the last p-value it is exactly 1, so rounding makes no p-value smaller.
        lowest = min(lowest, pvalues[index] * (count / place))
        adjusted[index] = lowest
    return adjusted


def _smallest_first(pvalues: Sequence[float]) -> list[int]:
    for value in pvalues:
        check_share("pvalues", value)
    return sorted(range(len(pvalues)), key=pvalues.__getitem__)
