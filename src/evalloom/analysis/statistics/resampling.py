"""Paired resampling for numbers of any kind, such as scores or seconds: the bootstrap and the permutation test.

Both depend on the differences of the pairs and the seed only, not on the order of the cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, prod
from typing import TYPE_CHECKING

from evalloom.analysis.statistics.arguments import check_count, check_finite, check_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

_MOST_CELLS = 4_000_000
"""Numbers that are drawn at once: some 32 MB."""


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95, samples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap interval of mean(b) - mean(a), where `a[i]` and `b[i]` belong to the same case.

    Cases are drawn with replacement, pairs together. The same `seed` gives the same interval. Below about 30 cases it
    is too narrow, and of equal differences it has no width: for pass rates use `paired_difference`.
    """
    import numpy as np

    differences = _differences(a, b)
    tail = (1 - check_share("confidence", confidence, is_open=True)) / 2
    samples, random = _check_samples(samples), np.random.default_rng(check_count("seed", seed))
    # Drawing how often each distinct difference occurs is the same as drawing cases, and passed/failed has three.
    values, counts = np.unique(differences, return_counts=True)
    shares = counts / counts.sum()
    means = [
        random.multinomial(len(differences), shares, size) @ values / len(differences)
        for size in _blocks(samples, len(values))
    ]
    low, high = np.quantile(np.concatenate(means), (tail, 1 - tail)).tolist()
    centre = float(counts @ values) / len(differences)
    # Rounding must not carry the difference itself out of its interval.
    return min(low, centre), max(high, centre)


def paired_permutation(a: Sequence[float], b: Sequence[float], samples: int = 10_000, seed: int = 0) -> float:
    """The two-sided p-value of mean(b) - mean(a), where `a[i]` and `b[i]` belong to the same case.

    If both sides are equally good, swapping the two numbers of a case changes nothing. The p-value is the share of all
    swaps that give a difference at least as large. It is exact if that takes at most `samples` sums; for zeros and ones
    it is then `mcnemar_exact`. Otherwise it is (1 + count) / (1 + samples) of random swaps, and never 0. The same
    `seed` gives the same p-value.
    """
    import numpy as np

    differences = _differences(a, b)
    samples, seed = _check_samples(samples), check_count("seed", seed)
    values, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    # Sums of the same numbers in another order differ in their last digits, and must count as equal.
    least = abs(float(differences.sum())) - 1e-12 * float(counts @ values)
    if least <= 0:
        return 1.0
    if prod(int(count) + 1 for count in counts) <= samples:
        return _exact_share(values, counts, least)
    random, reached = np.random.default_rng(seed), 0
    for size in _blocks(samples, len(values)):
        sums = (2 * random.binomial(counts, 0.5, (size, len(values))) - counts) @ values
        reached += int((np.abs(sums) >= least).sum())
    return (1 + reached) / (1 + samples)


def _exact_share(values: Floats, counts: Counts, least: float) -> float:
    """The share of all choices of signs whose sum is at least `least` away from 0; equal values are chosen together."""
    import numpy as np

    sums, chances = np.zeros(1), np.ones(1)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        ups = range(count + 1)
        steps = np.array([value * (2 * up - count) for up in ups])
        ways = [lgamma(count + 1) - lgamma(up + 1) - lgamma(count - up + 1) - count * log(2) for up in ups]
        sums = np.add.outer(sums, steps).ravel()
        chances = np.multiply.outer(chances, np.exp(ways)).ravel()
    return min(1.0, float(chances[np.abs(sums) >= least].sum()))


def _differences(a: Sequence[float], b: Sequence[float]) -> Floats:
    import numpy as np

    first, second = check_finite("a", a), check_finite("b", b)
    if len(first) != len(second):
        raise ValueError(f"b: expected one number for each of the {len(first)} of a, got {len(second)}")
    return np.sort(np.subtract(second, first))


def _check_samples(samples: int) -> int:
    if check_count("samples", samples) < 1:
        raise ValueError("samples: expected at least 1, got 0")
    return int(samples)


def _blocks(samples: int, width: int) -> list[int]:
    """Divide samples into blocks that fit into memory."""
    most = max(1, _MOST_CELLS // width)
    return [most] * (samples // most) + [samples % most] * bool(samples % most)
