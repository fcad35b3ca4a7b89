"""The statistics that reports and gates are made of: small, pure, and quick to import."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import floor, fsum, sqrt

_Z_95 = 1.959963984540054


def wilson(successes: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate: honest for few cases and for rates near 0 and 1."""
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


def _z(confidence: float) -> float:
    # The standard library's module takes several milliseconds to import, and almost everybody asks for 95 %.
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
