"""The statistics that reports and gates are made of: small, pure, and quick to import."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp, floor, fsum, lgamma, log, sqrt

_Z_95 = 1.959963984540054


def wilson(successes: float, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate: honest for few cases and for rates near 0 and 1.

    A case may be a part of a success, such as the share of its repeats: that varies less, so the interval is safe.
    """
    if not total:
        return 0.0, 1.0
    z = _Z_95 if confidence == 0.95 else _z(confidence)
    rate = successes / total
    spread = z * z / total
    centre = (rate + spread / 2) / (1 + spread)
    half = sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # Rounding may carry a bound past 0, 1 or the rate itself, which no reader would understand.
    return max(0.0, min(centre - half, rate)), min(1.0, max(centre + half, rate))


def percentile(sorted_values: Sequence[float], q: float) -> float:
    """The value below which the share `q` (0 to 1) of the values lies, interpolated between neighbours."""
    if not sorted_values:
        raise ValueError("a percentile needs at least one value")
    place = q * (len(sorted_values) - 1)
    index = floor(place)
    low, high = sorted_values[index], sorted_values[min(index + 1, len(sorted_values) - 1)]
    return low + (high - low) * (place - index)


def mean(values: Collection[float]) -> float:
    """The arithmetic mean, the same in whatever order the values come."""
    if not values:
        raise ValueError("a mean needs at least one value")
    return fsum(values) / len(values)


def mean_interval(total: float, squares: float, cases: int) -> tuple[float, float]:
    """The 95 % interval of a mean of numbers from 0 to 1, out of their sum and the sum of their squares.

    Two cases of 0 and two of 1 are added to the sample. Few cases that happen to be alike say little about those that
    were not seen, so the interval must not close on them; among many cases the four are not felt.
    """
    size = cases + 4
    centre = (total + 2) / size
    # With the normal quantile, three cases that are mostly 1 would hold the true mean only in 86 of 100 samples.
    half = _student_95(size - 1) * sqrt(max(0.0, (squares + 2) / size - centre * centre) / size)
    found = total / cases if cases else centre
    # The added cases pull towards the middle, and must not pull the mean itself out of its interval.
    return max(0.0, min(centre - half, found)), min(1.0, max(centre + half, found))


def paired_interval(gained: int, lost: int, total: int) -> tuple[float, float]:
    """The 95 % interval of Bonett and Price for a difference of two rates on the same cases.

    `gained` cases hold only under the second, `lost` only under the first, out of `total`.
    """
    up, down = (gained + 1) / (total + 2), (lost + 1) / (total + 2)
    half = _Z_95 * sqrt((up + down - (up - down) ** 2) / (total + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's exact test: how likely a split at least this uneven is when both are equally good."""
    total, fewer = gained + lost, min(gained, lost)
    if gained == lost:
        return 1.0
    term = exp(lgamma(total + 1) - lgamma(fewer + 1) - lgamma(total - fewer + 1) - total * log(2))
    tail = 0.0
    for number in range(fewer, -1, -1):
        tail += term
        term *= number / (total - number + 1)
        if term < tail * 1e-17:
            break
    return min(1.0, 2 * tail)


def _student_95(freedom: int) -> float:
    """Student's 97.5 % quantile, by its expansion around the normal one: right to 0.01 from 4 degrees of freedom."""
    z = _Z_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _z(confidence: float) -> float:
    # The standard library's module takes several milliseconds to import, and almost every interval is for 95 %.
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
