"""Whether a candidate prompt is better than prompt_a on the same cases, gate by gate (EVAL-15)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec
from msgspec import Struct

from evalloom.analysis.statistics import paired_difference, paired_mean_interval
from evalloom.prompt_eval.plan import SAFETY, SCORES, TestPoint
from evalloom.prompt_eval.scores import BEST_SCORE, ScoredCase

CORE_RISE = Fraction(40, 100)
PASS_RISE = Fraction(10, 100)
_MOST_APART = SCORES[-1] - SCORES[0]
"""A score changes by at most this much."""

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

    Figures are over the cases that are scored on both sides, and those whose run failed on both: such a case passes
    under neither prompt, and is in no average (EVAL-9). The first gate allows no others.
    """
    pairs = list(zip(before, after, strict=True))
    both = [(old, new) for old, new in pairs if _is_comparable(old, new)]
    core = tuple(point.id for point in points if point.is_core)
    by_core, passing = _change(both, core), _passing(both)
    has_safety = any(point.id == SAFETY for point in points)
    safety = _change(both, (SAFETY,) if has_safety else ())
    return Improvement(
        gates=(
            _all_scored(pairs),
            _no_ones(after, core),
            _core_rise(by_core),
            _pass_rise(passing),
            _safety_not_lower(safety, has_safety),
        ),
        core=by_core,
        passing=passing,
        safety=safety,
        points={point.id: _change(both, (point.id,)) for point in points},
        better=tuple(old.id for old, new in both if sum(new.scores) > sum(old.scores)),
        worse=tuple(old.id for old, new in both if sum(new.scores) < sum(old.scores)),
    )


def _is_comparable(old: ScoredCase, new: ScoredCase) -> bool:
    return (old.is_complete and new.is_complete) or (old.is_failed and new.is_failed)


def difference_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean difference of two averages of scores, one difference per case; None of nothing.

    The engine's interval of paired differences, scaled from -2 … 2: cases that all differ by the same do not close it.
    """
    if not differences:
        return None
    shares = [difference / _MOST_APART for difference in differences]
    low, high = paired_mean_interval(sum(shares), sum(share * share for share in shares), len(shares))
    return _MOST_APART * low, _MOST_APART * high


def _scores(case: ScoredCase, ids: tuple[str, ...]) -> list[int]:
    """Return the scores of a case on these test points; a failed run has none."""
    marks = [] if case.is_failed else [case.marks[point].score for point in ids if point in case.marks]
    return [score for score in marks if score is not None]


def _change(both: Pairs, ids: tuple[str, ...]) -> FigureChange:
    """Compare the averages over test points, with the interval of the mean difference of the cases."""
    first, second = ([_scores(pair[side], ids) for pair in both] for side in (0, 1))
    differences = [(sum(new) - sum(old)) / len(old) for old, new in zip(first, second, strict=True) if old]
    averages = []
    for side in (first, second):
        scores = [score for scores in side for score in scores]
        averages.append(Fraction(sum(scores), len(scores)) if scores else None)
    before, after = averages
    return FigureChange(before, after, difference_interval(differences))


def _passing(both: Pairs) -> FigureChange:
    """Compare the pass rates."""
    if not both:
        return FigureChange(None, None)
    passed = [(bool(old.is_passed), bool(new.is_passed)) for old, new in both]
    gained, lost = passed.count((False, True)), passed.count((True, False))
    before, after = (Fraction(sum(side), len(both)) for side in zip(*passed, strict=True))
    return FigureChange(before, after, paired_difference(gained, lost, len(both)))


def _all_scored(pairs: Pairs) -> PromotionGate:
    """Check that no case lacks scores on one side: without them it could only help one of the prompts."""
    failed = [old.id for old, new in pairs if old.is_failed and new.is_failed]
    apart = [pair for pair in pairs if not _is_comparable(*pair)]
    left = {
        name: [pair[side].id for pair in apart if not pair[side].is_complete]
        for side, name in enumerate(("prompt_a", "candidate"))
    }
    observed = [f"{name}: {', '.join(ids)} not scored" for name, ids in left.items() if ids]
    if failed:
        observed.append(f"{', '.join(failed)} failed under both, and passes under neither")
    requirement = "every case is scored under both prompts, or its run fails under both"
    return PromotionGate("scored", requirement, "; ".join(observed) or f"all {len(pairs)} scored", not apart)


def _no_ones(after: list[ScoredCase], core: tuple[str, ...]) -> PromotionGate:
    ones = [f"{case.id} {point}" for case in after for point in core if _scores(case, (point,)) == [1]]
    observed = ", ".join(ones) if ones else "none"
    return PromotionGate("no_core_1", "no 1 on a core test point", observed if core else "no core test point", not ones)


def _core_rise(change: FigureChange) -> PromotionGate:
    requirement = f"core average up by at least {float(CORE_RISE):.2f}"
    if change.rise is None:
        return PromotionGate("core_average", requirement, "no core test point was scored on both sides", False)
    observed = _moved(change, CORE_RISE) + _no_room(BEST_SCORE - (change.before or Fraction(0)), CORE_RISE, "{:.2f}")
    return PromotionGate("core_average", requirement, observed, change.rise >= CORE_RISE)


def _pass_rise(change: FigureChange) -> PromotionGate:
    requirement = f"pass rate up by at least {int(100 * PASS_RISE)} points"
    if change.rise is None or change.before is None or change.after is None:
        return PromotionGate("pass_rate", requirement, "no case was scored on both sides", False)
    rise = _signed(100 * change.rise, 100 * PASS_RISE, 1)
    observed = f"{float(change.before):.1%} → {float(change.after):.1%} ({rise} points)"
    observed += _no_room(100 * (1 - change.before), 100 * PASS_RISE, "{:.1f}")
    return PromotionGate("pass_rate", requirement, observed, change.rise >= PASS_RISE)


def _safety_not_lower(change: FigureChange, has_safety: bool) -> PromotionGate:
    requirement = "safety average not lower"
    if change.rise is None:
        observed = f"{SAFETY} was scored on no case" if has_safety else f"the plan has no {SAFETY}"
        return PromotionGate("safety", requirement, observed, not has_safety)
    return PromotionGate("safety", requirement, _moved(change, Fraction(0)), change.rise >= 0)


def _moved(change: FigureChange, limit: Fraction) -> str:
    assert change.before is not None and change.after is not None and change.rise is not None
    return f"{float(change.before):.2f} → {float(change.after):.2f} ({_signed(change.rise, limit, 2)})"


def _no_room(most: Fraction, limit: Fraction, form: str) -> str:
    """Say so where prompt_a is so good already that no candidate can rise by enough."""
    return f", and more than +{form.format(float(most))} is not possible" if most < limit else ""


def _signed(rise: Fraction, limit: Fraction, digits: int) -> str:
    """Format a rise, with more digits where rounding would carry it up to a limit that it misses."""
    shown = f"{float(rise):+.{digits}f}"
    while rise < limit and Fraction(shown) >= limit and digits < 9:
        digits += 1
        shown = f"{float(rise):+.{digits}f}"
    return shown
