"""The figures of a comparison: rates on the same cases, how sure their difference is, and how bad a drop."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from msgspec import Struct, structs

from evalloom.analysis.statistics import mcnemar, percentile

Grade = Literal["", "minor", "major", "critical"]
"""How bad a regression is; empty where there is none."""
GRADES: tuple[Grade, ...] = ("", "minor", "major", "critical")

Judgement = Literal["better", "worse", "no difference shown"]

MINOR_DROP, MAJOR_DROP = 0.05, 0.15
"""A group whose rate falls by up to so much is a minor and a major regression; beyond, a critical one."""
FEWEST_FLIPS = 6
"""So many cases must turn the same way, and none the other, before the exact test falls below 5 %."""
_Z_95 = 1.959963984540054
_ALPHA = 0.05


class RateComparison(Struct, frozen=True):
    """A pass rate before and now, over the cases that can be compared; `p_value` is corrected among many tags."""

    name: str
    cases: int
    base_rate: float | None
    rate: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    gained: int
    lost: int
    judgement: Judgement
    regression: Grade
    """How bad the drop of the rate is; empty when it is within what is allowed."""


class Medians(Struct, frozen=True):
    """A quantity before and now, over the cases that have it on both sides: medians, and that of the changes."""

    cases: int
    base: float
    now: float
    change: float


class Sums:
    """What the cases of one group add up to; a case's share is that of its repeats that passed."""

    __slots__ = ("base", "cases", "gained", "lost", "now", "squares")

    def __init__(self) -> None:
        self.cases = self.gained = self.lost = 0
        self.base = self.now = self.squares = 0.0

    def add(self, base: float, now: float) -> None:
        self.cases += 1
        self.base += base
        self.now += now
        self.squares += (now - base) ** 2
        self.gained += now > base
        self.lost += now < base

    def figures(self, name: str, allowed_drop: float) -> RateComparison:
        if not self.cases:
            return RateComparison(name, 0, None, None, None, None, None, None, 0, 0, "no difference shown", "")
        difference = (self.now - self.base) / self.cases
        low, high = paired_mean_interval(self.now - self.base, self.squares, self.cases)
        p_value = mcnemar(self.gained, self.lost)
        return RateComparison(
            name,
            self.cases,
            self.base / self.cases,
            self.now / self.cases,
            difference,
            low,
            high,
            p_value,
            self.gained,
            self.lost,
            _judgement(low, high, p_value),
            drop_grade(difference, allowed_drop),
        )


def paired_mean_interval(total: float, squares: float, cases: int) -> tuple[float, float]:
    """The 95 % interval of a mean of differences from -1 to 1, out of their sum and the sum of their squares.

    Two cases are added, one that gained and one that lost. For differences of -1, 0 and 1 that is the interval of
    Bonett and Price; for shares of repeats it is as honest about few cases, and never of no width.
    """
    size = cases + 2
    centre = total / size
    half = _Z_95 * sqrt(max(0.0, (squares + 2) / size - centre * centre) / size)
    difference = total / cases if cases else 0.0
    # Rounding must not carry the difference itself out of its interval.
    return max(-1.0, min(centre - half, difference)), min(1.0, max(centre + half, difference))


def drop_grade(difference: float, allowed_drop: float) -> Grade:
    """How bad a fall of a rate is, when it is more than allowed."""
    drop = round(-difference, 9)
    if drop <= round(allowed_drop, 9):
        return ""
    return "minor" if drop <= MINOR_DROP else "major" if drop <= MAJOR_DROP else "critical"


def worst(grades: Sequence[Grade]) -> Grade:
    """The worst of some grades."""
    return max(grades, key=GRADES.index, default="")


def corrected(groups: list[RateComparison]) -> list[RateComparison]:
    """Figures of many groups with Holm's correction: each further look makes a chance find likelier."""
    p_values = [one.p_value if one.p_value is not None else 1.0 for one in groups]
    order = sorted(range(len(groups)), key=p_values.__getitem__)
    found, highest = list(groups), 0.0
    for place, at in enumerate(order):
        highest = max(highest, min(1.0, p_values[at] * (len(groups) - place)))
        one = groups[at]
        if one.low is not None and one.high is not None:
            found[at] = structs.replace(one, p_value=highest, judgement=_judgement(one.low, one.high, highest))
    return found


def medians(base: Sequence[float], now: Sequence[float]) -> Medians | None:
    """The medians of two rows of numbers that belong together one by one; none of nothing."""
    if not base:
        return None
    changes = sorted(after - before for before, after in zip(base, now, strict=True))
    return Medians(len(base), percentile(sorted(base), 0.5), percentile(sorted(now), 0.5), percentile(changes, 0.5))


def _judgement(low: float, high: float, p_value: float) -> Judgement:
    # With few cases the interval and the exact test may disagree; then nothing is sure.
    if p_value >= _ALPHA or low <= 0 <= high:
        return "no difference shown"
    return "better" if low > 0 else "worse"
