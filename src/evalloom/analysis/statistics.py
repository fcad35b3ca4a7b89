"""The statistics that reports and gates are made of: small, pure, and quick to import."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, comb, erfc, exp, floor, fsum, lgamma, log, sqrt

_Z_95 = 1.959963984540054
_Z_80 = 0.8416212335729143


def wilson(successes: float, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate: honest for few cases and for rates near 0 and 1."""
    if not total:
        return 0.0, 1.0
    z = _Z_95 if confidence == 0.95 else _z(confidence)
    return _score_interval(successes / total, total, z)


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


def mean_interval(total: float, squares: float, cases: int, runs: int | None = None) -> tuple[float, float]:
    """The 95 % interval of a mean of numbers from 0 to 1, out of their sum and the sum of their squares.

    It is Wilson's interval for an effective number of cases: numbers that vary less than zeros and ones of the same
    mean count as more cases. A rate of zeros and ones has exactly Wilson's interval. Give one number per case, such as
    the share of its repeats that passed, so that repeats of a case never count as further cases. With the number of
    all `runs`, the interval is never as narrow as that of so many cases, however alike the shares are.
    """
    if not cases:
        return 0.0, 1.0
    # One case of 0 and one of 1 are added to estimate the variance: few cases that happen to be alike say little
    # about those that were not seen, so the interval must not close on them.
    size = cases + 2
    centre = (total + 1) / size
    variance = (squares + 1) / size - centre * centre
    ratio = min(1.0, max(variance / (centre * (1 - centre)), cases / runs if runs else 0.0))
    # The variance of zeros and ones follows from their mean; any other is an estimate, which Student's t allows for.
    z = sqrt(ratio * _Z_95**2 + (1 - ratio) * _student_95(size - 1) ** 2)
    return _score_interval(total / cases, cases / ratio, z)


def paired_mean_interval(total: float, squares: float, cases: int) -> tuple[float, float]:
    """The 95 % interval of a mean of differences from -1 to 1, out of their sum and the sum of their squares.

    Two cases are added, one that gained and one that lost. For differences of -1, 0 and 1 that is the interval of
    Bonett and Price; for shares of repeats it allows for few cases in the same way, and never has zero width.
    """
    centre, variance = _paired_moments(total, squares, cases)
    half = _Z_95 * sqrt(variance / (cases + 2))
    difference = total / cases if cases else 0.0
    # Rounding must not carry the difference itself out of its interval.
    return max(-1.0, min(centre - half, difference)), min(1.0, max(centre + half, difference))


def paired_test(total: float, squares: float, cases: int) -> float:
    """The p-value of a mean of differences from -1 to 1, with the variance of `paired_mean_interval`."""
    centre, variance = _paired_moments(total, squares, cases)
    return erfc(abs(centre) / sqrt(2 * variance / (cases + 2)))


def permuted_variance(passed: int, before: int, now: int) -> float:
    """The variance of a case's difference of shares, if chance alone says which of its runs are `before` and `now`.

    `passed` of all its runs passed. It is that of the hypergeometric distribution.
    """
    runs = before + now
    return passed * (runs - passed) / (before * now * (runs - 1))


def permutation_test(total: float, variance: float) -> float:
    """The p-value of a sum of differences, with the sum of the cases' `permuted_variance`."""
    return erfc(abs(total) / sqrt(2 * variance)) if variance else 1.0


def cases_to_detect(effect: float, total: float, squares: float, cases: int) -> int:
    """How many cases show a paired difference of `effect` in 80 of 100 comparisons, at the variance of these cases.

    The cases that the effect turns add to the variance, even where nothing varies yet.
    """
    _, variance = _paired_moments(total, squares, cases)
    return ceil((_Z_95 + _Z_80) ** 2 * (variance + effect - effect**2) / effect**2)


def detectable_drop(variance: float, cases: int) -> float:
    """The drop that 80 of 100 paired comparisons of these cases show, if it comes from cases that pass no more.

    `variance` is that of the difference of a case by chance alone. A case that passes no more adds to it: however often
    cases are repeated, some of them must break before it shows.
    """
    size = cases + 2
    spread = (_Z_95 + _Z_80) ** 2 / size
    # With one gain and one loss added, as in `_paired_moments`, the mean of the differences solves
    # centre² = spread · (noise + centre − centre²).
    noise = (cases * variance + 2) / size
    centre = (spread + sqrt(spread**2 + 4 * (1 + spread) * spread * noise)) / (2 * (1 + spread))
    return min(1.0, centre * size / cases)


def _paired_moments(total: float, squares: float, cases: int) -> tuple[float, float]:
    """The mean and the variance of differences to which one gain and one loss are added."""
    size = cases + 2
    centre = total / size
    return centre, max(0.0, (squares + 2) / size - centre * centre)


def paired_interval(gained: int, lost: int, total: int) -> tuple[float, float]:
    """The 95 % interval of Bonett and Price for a difference of two rates on the same cases.

    `gained` cases hold only under the second, `lost` only under the first, out of `total`.
    """
    return paired_mean_interval(gained - lost, gained + lost, total)


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


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of several tests in the same order, corrected by Holm: with each test, one by chance is likelier."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = highest
    return adjusted


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` runs passes, where `c` of `n` repeats did: pass@k, without bias."""
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of `k` runs pass, where `c` of `n` repeats did: pass^k, without bias."""
    return comb(c, k) / comb(n, k)


def _score_interval(rate: float, cases: float, z: float) -> tuple[float, float]:
    """Wilson's score interval; `cases` may be an effective number."""
    spread = z * z / cases
    centre = (rate + spread / 2) / (1 + spread)
    half = sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # Rounding may carry a bound past 0, 1 or the rate itself, which no reader would understand.
    return max(0.0, min(centre - half, rate)), min(1.0, max(centre + half, rate))


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
