"""Concludes from the record of each case over several batches: newly failing, fixed, flaky, or always the same.

A case is compared with itself only. What did not change is told by a fingerprint of its inputs, its expectations, the
target, the llms and their parameters: a case that passes and fails under one fingerprint is flaky. A case that passed
before and fails since is newly failing, if chance does not explain it. The chance is that of a permutation: if nothing
had changed, every order of the same passes and failures would be equally likely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, groupby
from math import comb, exp, fsum, log
from typing import Literal, NamedTuple

from msgspec import Struct

from evalloom.analysis.statistics import wilson_interval

Kind = Literal["newly_failing", "newly_flaky", "flaky", "fixed", "unclear", "always_fails", "never_fails"]
KINDS: tuple[Kind, ...] = (
    "newly_failing",
    "newly_flaky",
    "flaky",
    "fixed",
    "unclear",
    "always_fails",
    "never_fails",
)
_ALPHA = 0.025
"""Half of 5 %: cases are tested one by one, and all together."""
_CONVINCING = 0.001
"""Runs before a change are taken until a case alone could be as unlikely as this."""
_MOST_BY_CHANCE = 0.2
"""Cases that turned are named together only if at most this share of them is expected by chance."""
_MOST_STEPS = 5_000_000


class CaseBatch(Struct, frozen=True, gc=False):
    """The runs of one case in one batch. `fresh` leaves out answers of the cache, and runs copied from a batch."""

    batch: int
    runs: int
    passed: int
    counted: int
    fresh_passed: int
    fresh: int
    fingerprint: Hashable


class FlakeRate(Struct, frozen=True):
    """How often a flaky case fails with nothing changed, with its 95 % interval; over runs, since it is one case."""

    failed: int
    runs: int
    rate: float
    low: float
    high: float


class Conclusion(Struct, frozen=True):
    """What the record of a case shows."""

    kind: Kind
    since: int | None = None
    """The batch in which the present state of a case that turned began."""
    is_after_change: bool = False
    """Whether the fingerprint of the case changed just before."""
    direction: Literal["", "worse", "better"] = ""
    """How a case turned that is unclear."""
    chance: float | None = None
    """How likely such a record is by chance, given how often the case failed."""
    flake_rate: FlakeRate | None = None


class _Turn(NamedTuple):
    """Whether a case turned, or could have: the chance of it, given the numbers of its passes and failures."""

    has_turned: bool
    chance: float
    since: int
    is_after_change: bool


_NO_TURN = _Turn(False, 0.0, 0, False)


def conclude(records: Sequence[Sequence[CaseBatch]], newest: int) -> list[Conclusion]:
    """Conclude from the records of all cases, in the same order: the more there are, the more evidence each needs.

    Each record is in the order of the batches and has at least one counted run. `newest` is the newest batch.
    """
    # Most cases always end the same way, and need no further look.
    varies = [0 < sum(one.passed for one in record) < sum(one.counted for one in record) for record in records]
    down, up = (
        [_turn(record, to_passing) if varied else _NO_TURN for record, varied in zip(records, varies, strict=True)]
        for to_passing in (False, True)
    )
    shown_down, shown_up = _shown(down), _shown(up)
    return [
        _conclusion(record, down[at], up[at], at in shown_down, at in shown_up, newest)
        for at, record in enumerate(records)
    ]


def _conclusion(
    record: Sequence[CaseBatch], down: _Turn, up: _Turn, is_failing: bool, is_fixed: bool, newest: int
) -> Conclusion:
    if is_failing:
        return Conclusion("newly_failing", down.since, down.is_after_change, "worse", down.chance)
    if is_fixed:
        return Conclusion("fixed", up.since, up.is_after_change, "better", up.chance)
    passed, counted = sum(one.passed for one in record), sum(one.counted for one in record)
    if passed == counted:
        return Conclusion("never_fails")
    if not passed:
        return Conclusion("always_fails")
    if flake_rate := _flake_rate(record):
        was_flaky = _flake_rate([one for one in record if one.batch < newest]) is not None
        return Conclusion("flaky" if was_flaky else "newly_flaky", flake_rate=flake_rate)
    if down.has_turned:
        return Conclusion("unclear", down.since, down.is_after_change, "worse", down.chance)
    if up.has_turned:
        return Conclusion("unclear", up.since, up.is_after_change, "better", up.chance)
    return Conclusion("unclear")


def _flake_rate(record: Iterable[CaseBatch]) -> FlakeRate | None:
    """Return how often a case fails under fingerprints with which it passes, too; None if there are none."""
    counts: dict[Hashable, list[int]] = {}
    for one in record:
        # Every result counts for whether it differs, but only new ones for how often.
        count = counts.setdefault(one.fingerprint, [0, 0, 0, 0])
        for at, number in enumerate((one.passed, one.counted, one.fresh_passed, one.fresh)):
            count[at] += number
    mixed = [count for count in counts.values() if 0 < count[0] < count[1]]
    if not mixed:
        return None
    runs = sum(count[3] for count in mixed)
    failed = runs - sum(count[2] for count in mixed)
    return FlakeRate(failed, runs, failed / runs if runs else 0.0, *wilson_interval(failed, runs))


def _turn(record: Sequence[CaseBatch], to_passing: bool) -> _Turn:
    """Look for a turn: every run before it ended one way, and every run since the other way."""
    stretches = [list(group) for _, group in groupby(record, lambda one: one.fingerprint)]
    if len(stretches) == 1:
        return _turn_unchanged(stretches[0], to_passing)
    since = _counts(stretches[-1])
    before: list[CaseBatch] = []
    # How far to look back depends on numbers of runs, not on results, so that the chance stays exact.
    for stretch in reversed(stretches[:-1]):
        before = stretch + before
        earlier = _counts(before)
        if 1 / comb(earlier[1] + since[1], since[1]) <= _CONVINCING:
            break
    turned, runs = since[0] if to_passing else since[1] - since[0], earlier[1] + since[1]
    others = earlier[0] if to_passing else earlier[1] - earlier[0]
    has_turned = turned == since[1] and not others
    # Other cases could have turned by chance if they have as many results of this kind as runs since the change.
    chance = 1 / comb(runs, since[1]) if turned + others == since[1] else 0.0
    return _Turn(has_turned, chance, stretches[-1][0].batch, True)


def _turn_unchanged(record: Sequence[CaseBatch], to_passing: bool) -> _Turn:
    """Look for a turn between any two batches of a case that did not change."""
    fresh = [one for one in record if one.fresh]
    ends = [one.fresh_passed if to_passing else one.fresh - one.fresh_passed for one in fresh]
    turned, runs = sum(ends), sum(one.fresh for one in fresh)
    after = list(accumulate(one.fresh for one in reversed(fresh)))
    if not 0 < turned < runs or turned not in after:
        return _NO_TURN
    place = len(fresh) - 1 - after.index(turned)
    return _Turn(sum(ends[place:]) == turned, 1 / comb(runs, turned), fresh[place].batch, False)


def _counts(stretch: Iterable[CaseBatch]) -> tuple[int, int]:
    """Return how many new runs passed, of how many; an answer of the cache counts once, where there is no other."""
    batches = list(stretch)
    runs = sum(one.fresh for one in batches)
    if runs:
        return sum(one.fresh_passed for one in batches), runs
    return int(batches[-1].passed == batches[-1].counted), 1


def _shown(turns: Sequence[_Turn]) -> set[int]:
    """Return the cases whose turn is not explained by chance. An unchanged system has none in 95 % of histories."""
    possible = [turn.chance for turn in turns if turn.chance]
    turned = sorted((turn.chance, at) for at, turn in enumerate(turns) if turn.has_turned)
    if not turned:
        return set()
    by_chance = fsum(possible)
    if by_chance <= _MOST_BY_CHANCE * len(turned) and chance_of_turns(possible, len(turned)) < _ALPHA:
        return {at for _, at in turned}
    shown = set()
    for place, (chance, at) in enumerate(turned):
        if chance * (len(possible) - place) >= _ALPHA:
            break
        shown.add(at)
    return shown


def chance_of_turns(chances: Sequence[float], turned: int) -> float:
    """Return how likely at least so many cases turn by chance, each with its own chance."""
    if len(chances) * turned > _MOST_STEPS:
        # Chernoff's bound, which is enough for so many cases.
        mean = fsum(chances)
        return exp(turned - mean - turned * log(turned / mean)) if turned > mean else 1.0
    below_by_number = [1.0] + [0.0] * (turned - 1)
    for chance in chances:
        for number in range(turned - 1, 0, -1):
            below_by_number[number] += chance * (below_by_number[number - 1] - below_by_number[number])
        below_by_number[0] *= 1 - chance
    return max(0.0, 1 - fsum(below_by_number))
