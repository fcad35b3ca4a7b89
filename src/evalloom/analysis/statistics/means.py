"""Means: percentiles, standard errors, and the interval of a mean of numbers from 0 to 1."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import floor, fsum, sqrt

from evalloom.analysis.statistics.arguments import check_finite
from evalloom.analysis.statistics.distributions import Z_95, student_95
from evalloom.analysis.statistics.rates import score_interval


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


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean: the standard deviation (with n - 1) divided by √n. It needs two values."""
    numbers = check_finite("values", values, least=2)
    centre = mean(numbers)
    return sqrt(fsum((number - centre) ** 2 for number in numbers) / (len(numbers) - 1) / len(numbers))


def clustered_standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """The standard error of the mean if values of the same cluster depend on each other, such as repeats of a case.

    `clusters` names the cluster of each value; there must be at least two. It is the sandwich estimator: the root of
    the sum over the clusters of the squared sum of residuals, divided by n. The small-sample factor is √(G / (G - 1))
    for G clusters (CR1, as in Stata and statsmodels for a mean). So it equals `standard_error` if each value is its
    own cluster.
    """
    numbers = check_finite("values", values, least=2)
    if len(clusters) != len(numbers):
        raise ValueError(f"clusters: expected one for each of the {len(numbers)} values, got {len(clusters)}")
    centre = mean(numbers)
    residuals: dict[Hashable, list[float]] = {}
    for number, cluster in zip(numbers, clusters, strict=True):
        residuals.setdefault(cluster, []).append(number - centre)
    groups = len(residuals)
    if groups < 2:
        raise ValueError("clusters: expected at least two different ones, got one: it cannot show how clusters vary")
    return sqrt(fsum(fsum(group) ** 2 for group in residuals.values()) * groups / (groups - 1)) / len(numbers)


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
    z = sqrt(ratio * Z_95**2 + (1 - ratio) * student_95(size - 1) ** 2)
    return score_interval(total / cases, cases / ratio, z)
