"""Simulate how often the printed 95 % intervals hold the truth, and how often an unchanged system is called worse.

.venv/bin/python benchmarks/coverage.py [--samples 20000] [--comparisons 2000]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from coverage_prompt_eval import measurements
from numpy.typing import NDArray

from evalloom.analysis.compare import CRITICAL_TAG, CaseResult, Comparer, ComparisonRules
from evalloom.analysis.compare_rule import conclude
from evalloom.analysis.statistics import mean_interval, paired_mean_interval

Values = NDArray[np.float64]
"""One row a sample, one column a case."""
Interval = Callable[[float, float, int], tuple[float, float]]

_CASES = (10, 30, 100)
_REPEATS = (1, 5, 20)
_RATES = np.arange(0.05, 0.951, 0.05)
_MEAN_FLOOR = 0.94
_FALSE_ALARMS = 0.05


class Coverage(NamedTuple):
    """How often an interval holds the truth, averaged over the true values, and at the worst of them."""

    name: str
    cases: int
    mean: float
    lowest: float

    @property
    def floor(self) -> float:
        """The lowest coverage that WORK-4 allows at a single true value."""
        return 0.90 if self.cases < 30 else 0.92

    @property
    def holds(self) -> bool:
        return self.mean >= _MEAN_FLOOR and self.lowest >= self.floor


class Alarms(NamedTuple):
    """The share of comparisons that call an unchanged system worse by the default rule."""

    name: str
    share: float


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--samples", type=int, default=20_000)
    options.add_argument("--comparisons", type=int, default=2_000)
    arguments = options.parse_args()
    failed = False
    print(f"{'95 % interval':<58} cases   mean  lowest")
    for found in _coverages(arguments.samples):
        failed |= not found.holds
        verdict = "" if found.holds else f"  below {_MEAN_FLOOR} or {found.floor}"
        print(f"{found.name:<58} {found.cases:5}  {found.mean:.3f}   {found.lowest:.3f}{verdict}")
    print(f"\n{'unchanged system, default rule':<70} called worse")
    for alarms in _false_alarms(arguments.comparisons):
        failed |= alarms.share > _FALSE_ALARMS
        print(f"{alarms.name:<70} {alarms.share:.3f}{'  above 0.05' if alarms.share > _FALSE_ALARMS else ''}")
    return int(failed)


def _coverages(samples: int) -> Iterator[Coverage]:
    chance = np.random.default_rng(2026)
    for cases in _CASES:
        yield from _pass_rates(chance, cases, samples)
        yield from _rag_means(chance, cases, samples)
        yield from _differences(chance, cases, samples // 4)
        yield from _gaps(chance, cases, samples // 4)
    for measurement in measurements(samples // 5):
        yield Coverage(*measurement)


# -- pass rates of run, stats, gates and reports -------------------------------------------------------


def _shares(chance: np.random.Generator, rate: float, kind: str, size: tuple[int, int], repeats: int) -> Values:
    """The shares of repeats that passed, of cases that are alike, or that differ in how hard they are."""
    return chance.binomial(repeats, _chances(chance, rate, kind, size)) / repeats


def _chances(chance: np.random.Generator, rate: float, kind: str, size: tuple[int, int]) -> Values:
    if kind == "like":
        return np.full(size, rate)
    if kind == "always or never":
        return (chance.random(size) < rate).astype(float)
    return chance.beta(rate, 1 - rate, size)


def _pass_rates(chance: np.random.Generator, cases: int, samples: int) -> Iterator[Coverage]:
    for repeats in _REPEATS:
        # With one repeat, how the cases differ cannot be seen.
        for kind in ("like", "unlike", "always or never") if repeats > 1 else ("like",):
            interval = partial(mean_interval, runs=cases * repeats)
            found = [
                _covered(_shares(chance, rate, kind, (samples, cases), repeats), rate, interval) for rate in _RATES
            ]
            yield _coverage(f"pass rate, {_times(repeats)}, {kind} cases", cases, found)


def _times(repeats: int) -> str:
    return "1 repeat" if repeats == 1 else f"{repeats} repeats"


# -- means of RAG measures, and gaps between wordings --------------------------------------------------


def _rag_means(chance: np.random.Generator, cases: int, samples: int) -> Iterator[Coverage]:
    size = (samples, cases)
    ranks = [_covered(_reciprocal_ranks(chance, rate, size), _mean_rank(rate), mean_interval) for rate in _RATES]
    yield _coverage("RAG mean, reciprocal rank", cases, ranks)
    found = [_covered(_recalls(chance, rate, size), rate, mean_interval) for rate in _RATES]
    yield _coverage("RAG mean, recall of one to three sources", cases, found)


def _reciprocal_ranks(chance: np.random.Generator, rate: float, size: tuple[int, int]) -> Values:
    ranks = chance.geometric(rate, size)
    return np.where(ranks <= 5, 1 / ranks, 0.0)


def _mean_rank(rate: float) -> float:
    return sum((1 - rate) ** (rank - 1) * rate / rank for rank in range(1, 6))


def _recalls(chance: np.random.Generator, rate: float, size: tuple[int, int]) -> Values:
    sources = chance.integers(1, 4, size)
    return chance.binomial(sources, rate) / sources


def _gaps(chance: np.random.Generator, cases: int, samples: int) -> Iterator[Coverage]:
    """The gap between oral and official wordings of the same concepts."""
    size = (samples, cases)
    pairs = [(oral, official) for official in _RATES[1::3] for oral in _RATES[1::3] if oral <= official]
    ranks = [
        _covered(
            _reciprocal_ranks(chance, oral, size) - _reciprocal_ranks(chance, official, size),
            _mean_rank(oral) - _mean_rank(official),
            paired_mean_interval,
        )
        for oral, official in pairs
    ]
    yield _coverage("oral/official gap, reciprocal rank", cases, ranks)
    hits = []
    for oral, official in pairs:
        # A concept that the oral wording finds is found by the official one, too.
        drawn = chance.random(size)
        found = (drawn < oral).astype(float) - (drawn < official)
        hits.append(_covered(found, oral - official, paired_mean_interval))
    yield _coverage("oral/official gap, hit", cases, hits)


# -- differences of two batches ------------------------------------------------------------------------


def _differences(chance: np.random.Generator, cases: int, samples: int) -> Iterator[Coverage]:
    size = (samples, cases)
    for repeats in _REPEATS:
        for kind in ("like", "unlike", "always or never"):
            found = []
            for rate in _RATES[::2]:
                for drop in (0.0, 0.02, 0.1, 0.2, 0.4):
                    if drop <= rate:
                        before = _chances(chance, rate, kind, size)
                        # A change breaks some cases and leaves the others as they were.
                        now = np.where(chance.random(size) < drop / rate, 0.0, before)
                        shares = [chance.binomial(repeats, side) / repeats for side in (before, now)]
                        found.append(_covered(shares[1] - shares[0], -drop, paired_mean_interval))
            yield _coverage(f"paired difference, {_times(repeats)}, {kind} cases", cases, found)


def _covered(values: Values, truth: float, interval: Interval) -> float:
    """The share of samples whose interval holds the truth."""
    cases = values.shape[1]
    cached = lru_cache(maxsize=None)(interval)
    held = 0
    # Rounded, so that samples with the same values share one interval.
    sums = np.round(values.sum(axis=1), 9).tolist(), np.round((values * values).sum(axis=1), 9).tolist()
    for total, squares in zip(*sums, strict=True):
        low, high = cached(total, squares, cases)
        held += low - 1e-9 <= truth <= high + 1e-9
    return held / len(values)


def _coverage(name: str, cases: int, found: list[float]) -> Coverage:
    return Coverage(name, cases, sum(found) / len(found), min(found))


# -- false alarms --------------------------------------------------------------------------------------


def _false_alarms(comparisons: int) -> Iterator[Alarms]:
    chance = np.random.default_rng(7)
    for cases in (30, 100, 300):
        for repeats in (1, 3):
            name = f"{cases} cases, {_times(repeats)}"
            yield Alarms(name, _alarm_rate(chance, comparisons, cases, (repeats, repeats)))
    yield Alarms("100 cases, 1 repeat before and 5 now", _alarm_rate(chance, comparisons, 100, (1, 5)))
    yield Alarms("100 cases, 1 repeat, ten tags", _alarm_rate(chance, comparisons, 100, (1, 1), tags=10))
    yield Alarms("100 cases, 1 repeat, ten variants", _alarm_rate(chance, comparisons // 4, 100, (1, 1), variants=10))
    for critical in (1, 2, 3, 10, 30):
        name = f"{critical} flaky critical {'case' if critical == 1 else 'cases'}, 3 repeats"
        yield Alarms(name, _alarm_rate(chance, comparisons, critical, (3, 3), is_critical=True))
    name = "3,000 cases that pass in 95 %, 1 repeat before and 20 now, 30 tags"
    yield Alarms(name, _alarm_rate(chance, comparisons // 10, 3000, (1, 20), tags=30, rate=0.95))


def _alarm_rate(
    chance: np.random.Generator,
    comparisons: int,
    cases: int,
    repeats: tuple[int, int],
    tags: int = 0,
    variants: int = 1,
    is_critical: bool = False,
    rate: float | None = None,
) -> float:
    """The share of comparisons in which some variant of the same system is called a regression."""
    rules = ComparisonRules(by=("tag",) if tags else ())
    alarms = 0
    for _ in range(comparisons):
        chances = np.full(cases, 0.5 if is_critical else rate) if is_critical or rate else chance.beta(2, 1, cases)
        names = [
            ((CRITICAL_TAG,) if is_critical else (f"t{number % tags}",) if tags else ()) for number in range(cases)
        ]
        base = _results(chance, chances, repeats[0], names)
        comparers = []
        for variant in range(variants):
            comparer = Comparer(f"v{variant}", "base", rules)
            for result in base:
                comparer.add_before(result)
            for result in _results(chance, chances, repeats[1], names):
                comparer.add(result)
            comparers.append(comparer)
        alarms += any(item.is_regression for item in conclude([comparer.result() for comparer in comparers], rules))
    return alarms / comparisons


def _results(
    chance: np.random.Generator, chances: Values, repeats: int, tags: list[tuple[str, ...]]
) -> list[CaseResult]:
    results = []
    for number, passed in enumerate(chance.binomial(repeats, chances).tolist()):
        status = "passed" if passed == repeats else "failed"
        results.append(
            CaseResult(str(number), 1, status, passed / repeats, tags=tags[number], passed=passed, repeats=repeats)
        )
    return results


if __name__ == "__main__":
    sys.exit(main())
