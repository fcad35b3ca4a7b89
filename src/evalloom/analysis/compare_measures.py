"""The other measures of the same cases, such as recall and nDCG: they inform, and decide nothing."""

from __future__ import annotations

from msgspec import Struct

from evalloom.analysis.compare_figures import Sums, paired_mean_interval
from evalloom.batchlog.results import Measures


class Measured(Struct, frozen=True):
    """The mean of one measure before and now, over the cases of a group that have it on both sides."""

    name: str
    bucket: str
    """Empty for all cases together."""
    cases: int
    base: float
    now: float
    difference: float
    low: float
    high: float


class MeasureSums:
    """Takes the measures of case after case, and gives their means: first of all cases, then of each bucket."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Sums] = {}

    def add(self, before: Measures, now: Measures, bucket: str) -> None:
        base = dict(before)
        for name, value in now:
            if name in base:
                for group in ("", bucket) if bucket else ("",):
                    self._sums.setdefault((group, name), Sums()).add(base[name], value)

    def result(self) -> list[Measured]:
        # Sorting is stable, so that the measures of a group stay in the order of their checks.
        measures = []
        for bucket, name in sorted(self._sums, key=lambda key: key[0]):
            sums = self._sums[bucket, name]
            total, cases = sums.now - sums.base, sums.cases
            low, high = paired_mean_interval(total, sums.squares, cases)
            measures.append(
                Measured(name, bucket, cases, sums.base / cases, sums.now / cases, total / cases, low, high)
            )
        return measures
