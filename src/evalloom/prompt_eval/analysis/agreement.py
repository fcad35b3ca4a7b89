"""Measures how reliable a judge is: its agreement with people, and with itself on repeats (EVAL-16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import atanh, sqrt, tanh

from msgspec import Struct

from evalloom.analysis.statistics import cohen_kappa, mean, wilson_interval, z_value
from evalloom.prompt_eval.plan import SCORES
from evalloom.prompt_eval.scores import ScoredCase

Confusion = tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]
"""How often people gave 1, 2, 3 (rows) where the judge gave 1, 2, 3 (columns)."""
_RANGE = range(len(SCORES))


class PointAgreement(Struct, frozen=True):
    """How well judge and people agree on one test point."""

    point: str
    confusion: Confusion

    @property
    def cases(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def agreed(self) -> int:
        return sum(self.confusion[score][score] for score in _RANGE)

    @property
    def exact(self) -> float | None:
        """The share of cases with the very same score."""
        return self.agreed / self.cases if self.cases else None

    @property
    def exact_interval(self) -> tuple[float, float] | None:
        return wilson_interval(self.agreed, self.cases) if self.cases else None

    @property
    def kappa(self) -> float | None:
        return weighted_kappa(self.confusion)

    @property
    def kappa_interval(self) -> tuple[float, float] | None:
        return kappa_interval(self.confusion)

    @property
    def bias(self) -> float | None:
        """How much higher the judge scores than people, on average; negative where it is the stricter one."""
        if not self.cases:
            return None
        return sum(self.confusion[human][judge] * (judge - human) for human in _RANGE for judge in _RANGE) / self.cases


class PointNoise(Struct, frozen=True):
    """How much the judge's scores on one test point change when it scores the same output again."""

    point: str
    cases: int
    """Cases that have at least two scores."""
    stable: int
    """Cases whose scores are all the same."""
    mean_range: float | None
    """The highest score less the lowest, on average."""

    @property
    def share(self) -> float | None:
        return self.stable / self.cases if self.cases else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson_interval(self.stable, self.cases) if self.cases else None


def agreement(
    cases: Iterable[ScoredCase], humans: Mapping[str, Mapping[str, int]], points: Iterable[str]
) -> tuple[PointAgreement, ...]:
    """Measure the agreement on each test point that people scored; `humans` has their scores by case and test point."""
    cases = list(cases)
    agreements = (PointAgreement(point, confusion(_pairs(cases, humans, point))) for point in points)
    return tuple(agreement for agreement in agreements if agreement.cases)


def _pairs(
    cases: Iterable[ScoredCase], humans: Mapping[str, Mapping[str, int]], point: str
) -> Iterable[tuple[int, int]]:
    for case in cases:
        human, mark = humans.get(case.id, {}).get(point), case.marks.get(point)
        if human is not None and mark and mark.score is not None and not case.is_failed:
            yield human, mark.score


def confusion(pairs: Iterable[tuple[int, int]]) -> Confusion:
    """Count pairs of a person's and the judge's score."""
    counts = Counter(pairs)
    first, second, third = ((counts[human, 1], counts[human, 2], counts[human, 3]) for human in SCORES)
    return first, second, third


def weighted_kappa(table: Confusion) -> float | None:
    """Cohen's kappa with quadratic weights: 1 is perfect, 0 is no better than chance.

    None for fewer than two cases, and where both give the same single score to all cases: chance explains that.
    """
    return cohen_kappa(table, "quadratic") if sum(map(sum, table)) > 1 else None


def kappa_interval(table: Confusion) -> tuple[float, float] | None:
    """The 95 % interval of the weighted kappa; None where there is no kappa.

    The large-sample variance of Fleiss, Cohen and Everitt (1969), on Fisher's scale (the inverse hyperbolic tangent):
    with quadratic weights kappa is Lin's concordance coefficient, for which that scale keeps the interval inside
    -1 to 1. Two cases are added first, one spread over all nine cells and one over the three that agree: otherwise
    few cases, or cases that all agree, close the interval on themselves. benchmarks/coverage_prompt_eval.py measures
    how often it holds the true kappa.
    """
    kappa = weighted_kappa(table)
    if kappa is None:
        return None
    padded = [[count + 1 / 9 + (i == j) / 3 for j, count in enumerate(row)] for i, row in enumerate(table)]
    middle = cohen_kappa(padded, "quadratic")
    assert middle is not None  # every cell has a share of a case
    spread = z_value() * sqrt(_variance(padded)) / (1 - middle * middle)
    low, high = tanh(atanh(middle) - spread), tanh(atanh(middle) + spread)
    # The added cases must not pull kappa itself out of its interval.
    return min(low, kappa), max(high, kappa)


def _variance(table: Sequence[Sequence[float]]) -> float:
    total = sum(map(sum, table))
    shares = [[count / total for count in row] for row in table]
    rows, columns = [sum(row) for row in shares], [sum(row[score] for row in shares) for score in _RANGE]
    weights = [[1 - (i - j) ** 2 / (len(SCORES) - 1) ** 2 for j in _RANGE] for i in _RANGE]
    of_rows = [sum(columns[j] * weights[i][j] for j in _RANGE) for i in _RANGE]
    of_columns = [sum(rows[i] * weights[i][j] for i in _RANGE) for j in _RANGE]
    observed = sum(shares[i][j] * weights[i][j] for i in _RANGE for j in _RANGE)
    chance = sum(rows[i] * columns[j] * weights[i][j] for i in _RANGE for j in _RANGE)
    squares = sum(
        shares[i][j] * (weights[i][j] * (1 - chance) - (of_rows[i] + of_columns[j]) * (1 - observed)) ** 2
        for i in _RANGE
        for j in _RANGE
    )
    centred = squares - (observed * chance - 2 * chance + observed) ** 2
    return max(0.0, centred) / (total * (1 - chance) ** 4)


def noise(repeats: Mapping[str, Sequence[Mapping[str, int | None]]], points: Iterable[str]) -> tuple[PointNoise, ...]:
    """Measure the judge's noise on each test point; `repeats` has the scores of each repeat by case."""
    noises = (_noise(point, repeats) for point in points)
    return tuple(noise for noise in noises if noise.cases)


def _noise(point: str, repeats: Mapping[str, Sequence[Mapping[str, int | None]]]) -> PointNoise:
    ranges = []
    for times in repeats.values():
        scores = [score for one in times if (score := one.get(point)) is not None]
        if len(scores) > 1:
            ranges.append(max(scores) - min(scores))
    return PointNoise(point, len(ranges), ranges.count(0), mean(ranges) if ranges else None)
