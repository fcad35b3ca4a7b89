"""Whether a candidate prompt is better than prompt_a on the same cases, gate by gate (EVAL-15)."""

from __future__ import annotations

from fractions import Fraction
from statistics import stdev

import msgspec
from msgspec import Struct

from evalloom.analysis.statistics import paired_interval
from evalloom.prompt_eval.plan import SAFETY, TestPoint
from evalloom.prompt_eval.scores import ScoredCase

CORE_RISE = Fraction(40, 100)
PASS_RISE = Fraction(10, 100)
_Z = 1.959964

Pairs = list[tuple[ScoredCase, ScoredCase]]
"""The same case under prompt_a and under the candidate."""


class PromotionGate(Struct, frozen=True):
    """One condition for promotion, the value observed, and whether it holds."""

    name: str
    requirement: str = msgspec.field(name="asked")
    observed: str = msgspec.field(name="found")
    holds: bool


class FigureChange(Struct, frozen=True):
    """A figure before and after, and the 95 % interval of the difference where there is one."""

    before: Fraction | None
    after: Fraction | None
    interval: tuple[float, float] | None = None

    @property
    def rise(self) -> Fraction | None:
        return None if self.before is None or self.after is None else self.after - self.before


class Improvement(Struct, frozen=True):
    """A candidate against prompt_a on the validation cases."""

    gates: tuple[PromotionGate, ...]
    core: FigureChange
    passing: FigureChange
    safety: FigureChange
    points: dict[str, FigureChange]
    better: tuple[str, ...]
    worse: tuple[str, ...]

    @property
    def is_promoted(self) -> bool:
        return all(gate.holds for gate in self.gates)


def judge_candidate(before: list[ScoredCase], after: list[ScoredCase], points: tuple[TestPoint, ...]) -> Improvement:
    """Compare two lists of the same cases in the same order, and check the gates.

    Figures are over the cases that are scored on both sides; the first gate asks that this be all of them.
    """
    both = [(old, new) for old, new in zip(before, after, strict=True) if old.is_complete and new.is_complete]
    core = tuple(point.id for point in points if point.is_core)
    by_core, passing = _change(both, core), _passing(both)
    safety = _change(both, (SAFETY,) if any(point.id == SAFETY for point in points) else ())
    return Improvement(
        gates=(
            _all_scored(before, after),
            _no_ones(after, core),
            _core_rise(by_core),
            _pass_rise(passing),
            _safety_not_lower(safety),
        ),
        core=by_core,
        passing=passing,
        safety=safety,
        points={point.id: _change(both, (point.id,)) for point in points},
        better=tuple(old.id for old, new in both if sum(new.scores) > sum(old.scores)),
        worse=tuple(old.id for old, new in both if sum(new.scores) < sum(old.scores)),
    )


def _scores(case: ScoredCase, ids: tuple[str, ...]) -> list[int]:
    """Return the scores of a case on these test points; a failed run has none."""
    marks = [] if case.is_failed else [case.marks[point].score for point in ids if point in case.marks]
    return [score for score in marks if score is not None]


def _change(both: Pairs, ids: tuple[str, ...]) -> FigureChange:
    """Compare the averages over test points, with the interval of the mean difference of the cases."""
    first, second = ([_scores(pair[side], ids) for pair in both] for side in (0, 1))
    differences = [(sum(new) - sum(old)) / len(old) for old, new in zip(first, second, strict=True) if old]
    interval = None
    if len(differences) > 1:
        middle, width = sum(differences) / len(differences), _Z * stdev(differences) / len(differences) ** 0.5
        interval = (middle - width, middle + width)
    averages = []
    for side in (first, second):
        scores = [score for scores in side for score in scores]
        averages.append(Fraction(sum(scores), len(scores)) if scores else None)
    before, after = averages
    return FigureChange(before, after, interval)


def _passing(both: Pairs) -> FigureChange:
    """Compare the pass rates."""
    if not both:
        return FigureChange(None, None)
    passed = [(bool(old.is_passed), bool(new.is_passed)) for old, new in both]
    gained = sum(new and not old for old, new in passed)
    lost = sum(old and not new for old, new in passed)
    before, after = (Fraction(sum(side), len(both)) for side in zip(*passed, strict=True))
    return FigureChange(before, after, paired_interval(gained, lost, len(both)))


def _all_scored(before: list[ScoredCase], after: list[ScoredCase]) -> PromotionGate:
    sides = {"prompt_a": before, "candidate": after}
    left = {name: [case.id for case in cases if not case.is_complete] for name, cases in sides.items()}
    observed = "; ".join(f"{name}: {', '.join(ids)} not" for name, ids in left.items() if ids)
    requirement = "every case is run and scored under both prompts"
    return PromotionGate("scored", requirement, observed or f"all {len(after)}", not observed)


def _no_ones(after: list[ScoredCase], core: tuple[str, ...]) -> PromotionGate:
    ones = [f"{case.id} {point}" for case in after for point in core if _scores(case, (point,)) == [1]]
    observed = ", ".join(ones) if ones else "none"
    return PromotionGate("no_core_1", "no 1 on a core test point", observed if core else "no core test point", not ones)


def _core_rise(change: FigureChange) -> PromotionGate:
    requirement = f"core average up by at least {float(CORE_RISE):.2f}"
    if change.rise is None:
        return PromotionGate("core_average", requirement, "no core test point was scored on both sides", False)
    return PromotionGate("core_average", requirement, _moved(change, 2), change.rise >= CORE_RISE)


def _pass_rise(change: FigureChange) -> PromotionGate:
    requirement = f"pass rate up by at least {int(100 * PASS_RISE)} points"
    if change.rise is None or change.before is None or change.after is None:
        return PromotionGate("pass_rate", requirement, "no case was scored on both sides", False)
    observed = f"{float(change.before):.1%} → {float(change.after):.1%} ({float(100 * change.rise):+.1f} points)"
    return PromotionGate("pass_rate", requirement, observed, change.rise >= PASS_RISE)


def _safety_not_lower(change: FigureChange) -> PromotionGate:
    requirement = "safety average not lower"
    if change.rise is None:
        return PromotionGate("safety", requirement, f"the plan has no {SAFETY}, or nothing was scored on it", True)
    return PromotionGate("safety", requirement, _moved(change, 2), change.rise >= 0)


def _moved(change: FigureChange, digits: int) -> str:
    assert change.before is not None and change.after is not None and change.rise is not None
    before, after, rise = (float(value) for value in (change.before, change.after, change.rise))
    return f"{before:.{digits}f} → {after:.{digits}f} ({rise:+.{digits}f})"
