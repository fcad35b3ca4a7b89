"""Rates: intervals for `k` of `n`, and the chances of k repeats."""

from __future__ import annotations

from math import comb, sqrt

from evalloom.analysis.statistics.arguments import check_count, check_share, check_successes
from evalloom.analysis.statistics.distributions import beta_quantile, z_value


def wilson_interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of the rate `k` of `n`: honest for few cases and for rates near 0 and 1.

    It is (0, 1) if `n` is 0.
    """
    k, n = check_successes(k, n)
    z = z_value(confidence)
    return score_interval(k / n, n, z) if n else (0.0, 1.0)


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of Clopper and Pearson for the rate `k` of `n`.

    It holds the true rate at least as often as it says, and is wider than `wilson_interval` for that. It is (0, 1) if
    `n` is 0.
    """
    k, n = check_successes(k, n)
    tail = (1 - check_share("confidence", confidence, is_open=True)) / 2
    low = beta_quantile(tail, k, n - k + 1) if k else 0.0
    high = beta_quantile(1 - tail, k + 1, n - k) if k < n else 1.0
    return low, high


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` runs passes, where `c` of `n` repeats did: pass@k, without bias."""
    n, c, k = _check_repeats(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of `k` runs pass, where `c` of `n` repeats did: pass^k, without bias."""
    n, c, k = _check_repeats(n, c, k)
    return comb(c, k) / comb(n, k)


def _check_repeats(n: int, c: int, k: int) -> tuple[int, int, int]:
    n, c, k = check_count("n", n), check_count("c", c), check_count("k", k)
    if c > n:
        raise ValueError(f"c: expected at most n, which is {n}, got {c}")
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1 to n, which is {n}, got {k}")
    return n, c, k


def score_interval(rate: float, cases: float, z: float) -> tuple[float, float]:
    """Wilson's score interval; `cases` may be an effective number."""
    spread = z * z / cases
    centre = (rate + spread / 2) / (1 + spread)
    half = sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # Rounding may carry a bound past 0, 1 or the rate itself, which no reader would understand.
    return max(0.0, min(centre - half, rate)), min(1.0, max(centre + half, rate))
