"""Quantiles and tails of the normal, chi-squared, beta and Student's distribution, without scipy.

scipy takes most of a second to import, which every command would pay. The tests compare with it.
"""

from __future__ import annotations

from math import erfc, exp, lgamma, log, log1p, sqrt

from evalloom.analysis.statistics.arguments import check_share

Z_95 = 1.959963984540054
Z_80 = 0.8416212335729143
"""The normal quantiles of a two-sided 95 % interval, and of a power of 80 %."""
_TINY = 1e-300


def normal_quantile(share: float) -> float:
    """The number below which a standard normal variable lies with the chance `share`."""
    # The standard library's module takes several milliseconds to import, and almost every interval is for 95 %.
    if share == 0.8:
        return Z_80
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def z_value(confidence: float = 0.95) -> float:
    """How many standard errors an interval of this confidence reaches to each side."""
    if confidence == 0.95:
        return Z_95
    return normal_quantile((1 + check_share("confidence", confidence, is_open=True)) / 2)


def chi2_tail(value: float, freedom: int) -> float:
    """The chance that a chi-squared variable with a whole number of degrees of freedom is at least `value`."""
    half = value / 2
    if half <= 0:
        return 1.0
    # The incomplete gamma function of a whole or half number is a finite sum, here in logarithms: exp(-half) alone
    # is 0 for large values.
    tail, first = (erfc(sqrt(half)), 0.5) if freedom % 2 else (0.0, 0.0)
    terms = (first + step for step in range(freedom // 2))
    return min(1.0, tail + sum(exp(term * log(half) - half - lgamma(term + 1)) for term in terms))


def beta_quantile(share: float, a: float, b: float) -> float:
    """The number below which a beta variable lies with the chance `share`, by bisection."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if _beta_share(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return middle


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction where that converges quickly."""
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction, m = d, 0
    # The number of terms grows with the square root of a and b.
    while True:
        m += 1
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + factor * d or _TINY)
            c = 1 + factor / c or _TINY
            fraction *= c * d
        if abs(c * d - 1) < 1e-15 or m > 100_000:
            return fraction


def student_95(freedom: int) -> float:
    """Student's 97.5 % quantile, by its expansion around the normal one: right to 0.01 from 4 degrees of freedom."""
    z = Z_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
