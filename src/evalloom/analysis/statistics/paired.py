"""Two or more sides on the same cases: tests of their difference, and its interval. It is second less first."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, exp, lgamma, log, sqrt

from evalloom.analysis.statistics.arguments import check_count, check_table
from evalloom.analysis.statistics.distributions import Z_95, chi2_tail, z_value


def mcnemar_exact(b: int, c: int) -> float:
    """The p-value of McNemar's exact test: how likely a split at least this uneven is when both sides are equally good.

    `b` cases pass on one side only and `c` on the other only. It is two-sided, and 1 where none differ.
    """
    b, c = check_count("b", b), check_count("c", c)
    total, fewer = b + c, min(b, c)
    if b == c:
        return 1.0
    term = exp(lgamma(total + 1) - lgamma(fewer + 1) - lgamma(total - fewer + 1) - total * log(2))
    tail = 0.0
    for number in range(fewer, -1, -1):
        tail += term
        term *= number / (total - number + 1)
        if term < tail * 1e-17:
            break
    return min(1.0, 2 * tail)


def mcnemar_chi2(b: int, c: int, continuity: bool = True) -> tuple[float, float]:
    """McNemar's statistic and its p-value by the chi-squared distribution; for few cases, use `mcnemar_exact`.

    `continuity` takes 1 off the difference of `b` and `c`, but no more than it is, as R does. Where no case differs,
    the result is (0, 1).
    """
    b, c = check_count("b", b), check_count("c", c)
    if b == c:
        return 0.0, 1.0
    statistic = (abs(b - c) - continuity) ** 2 / (b + c)
    return statistic, chi2_tail(statistic, 1)


def cochran_q(table: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Cochran's Q and its p-value: whether some of several systems pass more often than others on the same cases.

    `table` has a row per case and a column per system, with 1 for passed and 0 for not. The p-value is that of the
    chi-squared distribution, for at least some 20 cases that differ. With two systems it is `mcnemar_chi2` without
    continuity. Where no case differs, the result is (0, 1).
    """
    check_table(table)
    if any(value not in (0, 1) for row in table for value in row):
        raise ValueError("table: expected 0 or 1 in every cell")
    systems = len(table[0])
    if systems < 2:
        raise ValueError("table: expected at least two columns, got one")
    rows = [int(sum(row)) for row in table]
    columns = [int(sum(column)) for column in zip(*table, strict=True)]
    varying = sum(row * (systems - row) for row in rows)
    if not varying:
        return 0.0, 1.0
    spread = systems * sum(column**2 for column in columns) - sum(rows) ** 2
    statistic = (systems - 1) * spread / varying
    return statistic, chi2_tail(statistic, systems - 1)


def paired_difference(gained: int, lost: int, cases: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of Bonett and Price for a difference of two rates on the same cases, which `compare` uses.

    `gained` of all `cases` pass only on the second side and `lost` only on the first, so the difference is
    (gained - lost) / cases. One case of each kind is added, so that the interval never has zero width. It is (-1, 1)
    without cases.
    """
    gained, lost, cases = check_count("gained", gained), check_count("lost", lost), check_count("cases", cases)
    if gained + lost > cases:
        raise ValueError(f"cases: expected at least gained + lost, which is {gained + lost}, got {cases}")
    return paired_mean_interval(gained - lost, gained + lost, cases, z_value(confidence))


def paired_mean_interval(total: float, squares: float, cases: int, z: float = Z_95) -> tuple[float, float]:
    """The interval of a mean of differences from -1 to 1, out of their sum and the sum of their squares.

    Two cases are added, one that gained and one that lost. For differences of -1, 0 and 1 that is `paired_difference`;
    for shares of repeats it allows for few cases in the same way, and never has zero width.
    """
    centre, variance = paired_moments(total, squares, cases)
    half = z * sqrt(variance / (cases + 2))
    difference = total / cases if cases else 0.0
    # Rounding must not carry the difference itself out of its interval.
    return max(-1.0, min(centre - half, difference)), min(1.0, max(centre + half, difference))


def paired_test(total: float, squares: float, cases: int) -> float:
    """The p-value of a mean of differences from -1 to 1, with the variance of `paired_mean_interval`."""
    centre, variance = paired_moments(total, squares, cases)
    return erfc(abs(centre) / sqrt(2 * variance / (cases + 2)))


def paired_moments(total: float, squares: float, cases: int) -> tuple[float, float]:
    """The mean and the variance of differences to which one gain and one loss are added."""
    size = cases + 2
    centre = total / size
    return centre, max(0.0, (squares + 2) / size - centre * centre)


def permuted_variance(passed: int, before: int, now: int) -> float:
    """The variance of a case's difference of shares, if chance alone says which of its runs are `before` and `now`.

    `passed` of all its runs passed. It is that of the hypergeometric distribution.
    """
    runs = before + now
    return passed * (runs - passed) / (before * now * (runs - 1))


def permutation_test(total: float, variance: float) -> float:
    """The p-value of a sum of differences, with the sum of the cases' `permuted_variance`."""
    return erfc(abs(total) / sqrt(2 * variance)) if variance else 1.0
