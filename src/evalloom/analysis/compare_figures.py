"""The figures of a comparison: rates on the same cases, how sure their difference is, and how bad a drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from evalloom.analysis.statistics import (
    cases_to_detect,
    holm,
    mcnemar_exact,
    paired_mean_interval,
    paired_test,
    percentile,
    permutation_test,
)

__all__ = ["Sums", "corrected", "drop_grade", "medians", "paired_mean_interval", "worst"]

Grade = Literal["", "minor", "major", "critical"]
"""How bad a regression is; empty where there is none."""
GRADES: tuple[Grade, ...] = ("", "minor", "major", "critical")

Judgement = Literal["better", "worse", "no difference shown"]

MINOR_DROP, MAJOR_DROP = 0.05, 0.15
"""A group whose rate falls by up to so much is a minor and a major regression; beyond, a critical one."""
FEWEST_FLIPS = 6
"""So many cases must turn the same way, and none the other, before the exact test falls below 5 %."""
DETECTED = 0.05
"""The change of a rate for which a comparison tells how many more cases would show it."""
_ALPHA = 0.05
_MANY = 20_000
"""From so many values on, selecting the median with numpy is faster than sorting."""


class RateComparison(Struct, frozen=True):
    """A pass rate before and now, over the cases that can be compared."""

    name: str
    cases: int
    base_rate: float | None
    rate: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    """Corrected over everything that is compared at once."""
    gained: int
    lost: int
    judgement: Judgement
    regression: Grade = ""
    """How bad the drop of the rate is; empty when it is no regression."""
    more_cases: int | None = None
    """How many more cases would show a change of five points in 80 of 100 comparisons."""


class Medians(Struct, frozen=True):
    """A quantity before and now, over the cases that have it on both sides: medians, and that of the changes."""

    cases: int
    base: float
    now: float
    change: float


class Sums:
    """What the cases of one group add up to; a case's share is that of its repeats that passed."""

    __slots__ = ("base", "cases", "gained", "has_shares", "lost", "now", "permuted", "squares")

    def __init__(self) -> None:
        self.cases = self.gained = self.lost = 0
        self.base = self.now = self.squares = self.permuted = 0.0
        self.has_shares = False

    def add(self, base: float, now: float, permuted: float | None = None, number: int = 1) -> None:
        """Add equal cases. If their numbers are shares of several runs, `permuted` is their `permuted_variance`."""
        square = (now - base) ** 2
        self.cases += number
        self.base += number * base
        self.now += number * now
        self.squares += number * square
        self.gained += number * (now > base)
        self.lost += number * (now < base)
        self.permuted += number * (square if permuted is None else permuted)
        self.has_shares = self.has_shares or permuted is not None

    @property
    def p_value(self) -> float:
        """How likely a difference at least this large is when both sides are equally good."""
        if not self.has_shares:
            return mcnemar_exact(self.gained, self.lost)
        # Not McNemar's: most repeated cases move a little by chance, and would outnumber the few that break. And with
        # unequal repeats an unchanged case moves one way more often than the other; only its mean stays.
        total, moved = self.now - self.base, self.gained + self.lost
        return max(
            paired_test(total, self.squares, self.cases),
            # Where the side with one run happens to pass everywhere, the differences vary too little to tell.
            permutation_test(total, self.permuted),
            # Both are normal approximations, which claim too much for a few cases.
            mcnemar_exact(moved, 0),
        )

    def figures(self, name: str) -> RateComparison:
        """Return the figures, with a p-value that is not yet corrected for others."""
        if not self.cases:
            return RateComparison(name, 0, None, None, None, None, None, None, 0, 0, "no difference shown")
        total = self.now - self.base
        low, high = paired_mean_interval(total, self.squares, self.cases)
        return RateComparison(
            name,
            self.cases,
            self.base / self.cases,
            self.now / self.cases,
            total / self.cases,
            low,
            high,
            self.p_value,
            self.gained,
            self.lost,
            judge(low, high, self.p_value),
            more_cases=max(0, cases_to_detect(DETECTED, total, self.squares, self.cases) - self.cases),
        )


ShareCounts = Counter[tuple[float, float, float | None]]
"""How many cases have the same arguments of `Sums.add`: of those there are few, whatever the number of cases."""


def figures(name: str, counts: ShareCounts) -> RateComparison:
    """Return the figures of a group, which are the same in whatever order its cases came."""
    sums = Sums()
    for (base, now, permuted), number in sorted(counts.items(), key=lambda item: (item[0][:2], item[0][2] or 0.0)):
        sums.add(base, now, permuted, number)
    return sums.figures(name)


def drop_grade(difference: float, allowed_drop: float = 0.0) -> Grade:
    """How bad a fall of a rate is, when it is more than allowed."""
    drop = round(-difference, 9)
    if drop <= round(allowed_drop, 9):
        return ""
    return "minor" if drop <= MINOR_DROP else "major" if drop <= MAJOR_DROP else "critical"


def worst(grades: Sequence[Grade]) -> Grade:
    """The worst of some grades."""
    return max(grades, key=GRADES.index, default="")


def corrected(figures: Sequence[RateComparison]) -> list[RateComparison]:
    """Figures that are looked at together, with p-values corrected by Holm, in the same order."""
    p_values = holm([one.p_value for one in figures if one.p_value is not None])
    remaining = iter(p_values)
    return [one if one.p_value is None else _with_p_value(one, next(remaining)) for one in figures]


def _with_p_value(figures: RateComparison, p_value: float) -> RateComparison:
    assert figures.low is not None and figures.high is not None
    return structs.replace(figures, p_value=p_value, judgement=judge(figures.low, figures.high, p_value))


def medians(base: Sequence[float], now: Sequence[float]) -> Medians | None:
    """The medians of two rows of numbers that belong together one by one; none of nothing."""
    if not base:
        return None
    if len(base) < _MANY:
        changes = [after - before for before, after in zip(base, now, strict=True)]
        return Medians(len(base), *(percentile(sorted(values), 0.5) for values in (base, now, changes)))
    import numpy  # deferred: it takes longer to import than a small comparison takes

    columns = numpy.asarray(base, float), numpy.asarray(now, float)
    middle = (len(base) - 1) // 2
    found = []
    for values in (*columns, columns[1] - columns[0]):
        halves = numpy.partition(values, middle)
        # An even number of values has two in the middle.
        upper = halves[middle] if len(base) % 2 else halves[middle + 1 :].min()
        found.append(percentile([float(halves[middle]), float(upper)], 0.5))
    return Medians(len(base), *found)


def judge(low: float, high: float, p_value: float) -> Judgement:
    """Conclude from an interval and a test; where they disagree, as with few cases, nothing is shown."""
    if p_value >= _ALPHA or low <= 0 <= high:
        return "no difference shown"
    return "better" if low > 0 else "worse"
