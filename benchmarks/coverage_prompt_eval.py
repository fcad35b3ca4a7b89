"""The part of coverage.py about prompt-eval: how often its 95 % intervals hold the true value.

The pass rate, the exact agreement and the judge's stability have the engine's interval of a rate of cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from statistics import NormalDist

import numpy as np

from evalloom.analysis.statistics import paired_mean_interval
from evalloom.prompt_eval.analysis.agreement import kappa_interval
from evalloom.prompt_eval.analysis.gates import difference_interval

SEED = 20_240_607
CASES = (10, 30, 100)
MARGINS = {
    "balanced": (1 / 3, 1 / 3, 1 / 3),
    "skewed": (0.1, 0.2, 0.7),
    "very skewed": (0.05, 0.1, 0.85),
    "mostly 2": (0.15, 0.7, 0.15),
    "few 2s": (0.3, 0.1, 0.6),
}
"""How often people give 1, 2 and 3; the judge the same, unless it is kinder."""
KAPPAS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
CHANGES = {
    "no score changes": ((0,), (1.0,)),
    "every score rises by 1": ((1,), (1.0,)),
    "one in ten rises by 1": ((0, 1), (0.9, 0.1)),
    "half rise by 1": ((0, 1), (0.5, 0.5)),
    "few rise by 2": ((0, 2), (0.9, 0.1)),
    "half rise by 2": ((0, 2), (0.5, 0.5)),
    "noise": ((-1, 0, 1), (0.15, 0.7, 0.15)),
    "gains and losses": ((-2, -1, 0, 1, 2), (0.05, 0.1, 0.4, 0.25, 0.2)),
    "many gains, few losses": ((-2, 0, 1, 2), (0.05, 0.25, 0.3, 0.4)),
    "average of two core points": ((-0.5, 0, 0.5, 1, 1.5), (0.05, 0.45, 0.25, 0.15, 0.1)),
    "average of four core points": ((-0.25, 0, 0.25, 0.5, 1), (0.1, 0.4, 0.25, 0.15, 0.1)),
}
"""Kinds of changes of a case's score, and how likely each is."""
FLIPS = ((0.02, 0.02), (0.1, 0.0), (0.1, 0.1), (0.2, 0.05), (0.3, 0.1), (0.4, 0.0), (0.5, 0.2), (0.05, 0.25))
"""Shares of cases that pass only under the candidate, and only under prompt_a."""

Array = np.ndarray
Measurement = tuple[str, int, float, float]


def measurements(samples: int) -> Iterator[Measurement]:
    """Yield for each interval and number of cases the coverage averaged over the settings, and that of the worst."""
    for name, measure in (
        ("weighted kappa", _kappa_coverage),
        ("difference of averages, improvement.md", _difference_coverage),
        ("difference of pass rates, improvement.md", _flip_coverage),
    ):
        for cases in CASES:
            coverages = measure(np.random.default_rng(SEED), cases, samples)
            yield name, cases, sum(coverages) / len(coverages), min(coverages)


# -- kappa --------------------------------------------------------------------------------------------


def _kappa_coverage(random: np.random.Generator, cases: int, samples: int) -> list[float]:
    """Tables that have no kappa show no interval and make no claim, so they are left out."""
    interval = cache(lambda cells: kappa_interval((cells[:3], cells[3:6], cells[6:])))
    coverages = []
    for shares in joint_distributions():
        kappa = kappa_of(shares)
        tables = random.multinomial(cases, shares.ravel(), size=samples)
        bounds = [found for table in tables.tolist() if (found := interval(tuple(table)))]
        coverages.append(sum(low <= kappa <= high for low, high in bounds) / len(bounds))
    return coverages


@cache
def joint_distributions() -> list[Array]:
    """Return how likely each pair of scores is, for every kappa and margin, and for several kinds of disagreement."""
    settings = []
    for kappa, margin in product(KAPPAS, MARGINS.values()):
        guess = np.outer(margin, margin)
        settings.append(kappa * np.diag(margin) + (1 - kappa) * guess)  # agrees, or guesses
        settings.append(_nearly(kappa, margin, 0.0))  # is off by one rather than by two
        kinder = _nearly(kappa, margin, 0.4)
        # A judge that is kinder on balance cannot agree with people completely.
        settings += [kinder] if abs(kappa_of(kinder) - kappa) < 0.01 else []
    return settings


def kappa_of(shares: Array) -> float:
    """The quadratically weighted kappa of a distribution, from its definition."""
    apart = np.subtract.outer(range(3), range(3)) ** 2
    return float(1 - (shares * apart).sum() / (np.outer(shares.sum(1), shares.sum(0)) * apart).sum())


def _nearly(kappa: float, margin: tuple[float, ...], kinder: float) -> Array:
    """Two normal impressions of one output, cut into scores, with the correlation that gives this kappa."""
    low, high = -0.2, 0.9999
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if kappa_of(_impressions(middle, margin, kinder)) < kappa else (low, middle)
    return _impressions(low, margin, kinder)


def _impressions(correlation: float, margin: tuple[float, ...], kinder: float) -> Array:
    normal = NormalDist()
    cuts = [normal.inv_cdf(margin[0]), normal.inv_cdf(margin[0] + margin[1])]
    people = np.linspace(-5, 5, 501)
    weight = np.exp(-(people**2) / 2)
    weight /= weight.sum()
    rest = (1 - correlation**2) ** 0.5
    below = [np.array([normal.cdf(value) for value in (cut - kinder - correlation * people) / rest]) for cut in cuts]
    judge = np.diff([np.zeros_like(people), *below, np.ones_like(people)], axis=0)
    human = np.searchsorted(cuts, people)
    return np.array([[(weight * share)[human == score].sum() for share in judge] for score in range(3)])


# -- differences --------------------------------------------------------------------------------------


def _difference_coverage(random: np.random.Generator, cases: int, samples: int) -> list[float]:
    coverages = []
    for values, likely in CHANGES.values():
        true = float(np.dot(values, likely))
        drawn = random.choice(values, size=(samples, cases), p=likely)
        bounds = (difference_interval(row) for row in drawn.tolist())
        coverages.append(_share_holding(true, bounds, samples))
    return coverages


def _flip_coverage(random: np.random.Generator, cases: int, samples: int) -> list[float]:
    coverages = []
    for gained, lost in FLIPS:
        drawn = random.multinomial(cases, (gained, lost, 1 - gained - lost), size=samples)
        bounds = (paired_mean_interval(up - down, up + down, cases) for up, down, _ in drawn.tolist())
        coverages.append(_share_holding(gained - lost, bounds, samples))
    return coverages


def _share_holding(true: float, bounds: Iterator[tuple[float, float] | None], samples: int) -> float:
    # Rounding alone must not count as a miss where every case differs by the same.
    return sum(one is not None and one[0] - 1e-9 <= true <= one[1] + 1e-9 for one in bounds) / samples
