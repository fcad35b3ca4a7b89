"""Compare two sets of results on the same cases: gains, losses, severity and uncertainty (PIPE-17)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import fsum
from typing import Literal

from msgspec import Struct

from evalloom.analysis.compare_figures import Grade, Medians, RateComparison, ShareCounts, figures, medians
from evalloom.analysis.compare_measures import Measured, MeasureSums
from evalloom.analysis.statistics import permuted_variance
from evalloom.batchlog.results import CaseResult, Measures
from evalloom.core.model import Status
from evalloom.core.repeats import Count

__all__ = ["CaseResult", "Change", "Comparer", "Comparison", "ComparisonRules"]

CRITICAL_TAG = "critical"
"""A case with this tag must not be lost."""
FEWEST_REPEATS = 3
"""So many repeats on both sides show that a critical case was lost: all of them passed, and none does now."""

Kind = Literal["gained", "lost", "same", "new", "gone", "not comparable"]
KINDS: tuple[Kind, ...] = ("gained", "lost", "same", "new", "gone", "not comparable")
COMPARED: tuple[Kind, ...] = ("gained", "lost", "same")
"""The cases that have a result on both sides."""

By = Literal["bucket", "tag"]
"""By what cases can be grouped. A bucket is a tag of which a case has at most one."""


class ComparisonRules(Struct, frozen=True):
    """How results are compared. A group in `allowed_drops` is always compared on its own."""

    allowed_drop: float | None = None
    """How far a rate may fall; None to leave the decision to the statistics."""
    allowed_drops: Mapping[str, float] = {}
    """The allowed drop of single buckets and tags."""
    by: tuple[By, ...] = ()
    is_selection: bool = False
    """Whether only some cases were selected now, so that a missing case is not a loss."""
    buckets: tuple[str, ...] = ()
    """The tags that are buckets."""
    earlier_note: Callable[[Measures], str] = lambda measures: ""
    """A note on a case that fails now, from its measures of before; may be empty."""
    is_strict: bool = False
    """Whether any drop beyond the allowed one is a regression, and any case of critical severity."""
    has_pass_rule: bool = False
    """Whether the repeats of a case are one result: it passed, or it did not."""


class Change(Struct, frozen=True, gc=False):
    """One case whose result differs, or that has a note."""

    case_id: str
    occurrence: int
    change: Kind
    severity: Grade
    before: Status | None
    now: Status | None
    share_before: float | None
    share: float | None
    score_before: float | None
    score: float | None
    is_edited: bool
    """Whether the case itself was edited: its inputs, or what it expects."""
    tags: tuple[str, ...]
    reason: str
    notes: tuple[str, ...]
    """What may explain it: a changed document, its rank before."""
    position: int = 0
    is_unnamed: bool = False
    """Whether the case has no id of its own; `position` then is its number in its file."""
    repeats_before: Count = (0, 0)
    """How many repeats passed before, of how many that count; and now."""
    repeats: Count = (0, 0)


class OneSidedGroup(Struct, frozen=True):
    """A bucket or tag that exists on one side only, with its number of cases."""

    by: By
    name: str
    cases: int


class Comparison(Struct, frozen=True):
    """One profile compared with another one, or with its earlier self. `counts` has every kind of change."""

    profile: str
    base_profile: str
    figures: RateComparison
    buckets: list[RateComparison]
    tags: list[RateComparison]
    added: list[OneSidedGroup]
    """The buckets and tags that were not there before; by themselves no regression, nor are those removed."""
    removed: list[OneSidedGroup]
    measures: list[Measured]
    """Other measures than the pass rate, where batches have them: of all cases, then of each bucket."""
    counts: dict[Kind, int]
    counted_before: int
    """How many cases passed, failed or met an error before."""
    missing: int
    """How many of those have no such result now: gone, skipped, blocked or unscored."""
    is_comparable: bool
    """Whether at least half of the cases that passed before have a result now, or were left out on purpose."""
    edited: int
    """How many of the cases compared are not what they were."""
    changes: list[Change]
    """Every case but those that are the same in all respects."""
    critical_lost: int
    """How many critical cases passed in all repeats before, and pass in none now."""
    critical_shown: int
    """How many of those have repeats enough to show it."""
    critical_chance: float
    """How many would be expected by chance, from the critical cases that pass in some of their repeats."""
    latency_s: Medians | None
    tokens: Medians | None
    cost_before: float
    cost: float
    severity: Grade = ""
    """The worst that happened: to a case, to the whole, to a bucket or to a tag."""
    is_regression: bool = False
    is_selection: bool = False
    """Whether only some cases were selected now, so that a missing case is not a loss."""
    is_critical_shown: bool = False
    """Whether lost critical cases decide it: they have repeats enough, and chance does not explain them."""


_DEFAULT = ComparisonRules()
_Tags = Counter[tuple[str, ...]]
"""How many cases have the same tags: far fewer than there are cases."""
Usage = tuple[bytes, bytes]
"""The numbers of many cases before and now, each a C double."""


class Comparer:
    """Compares results with those of before, case by case.

    Memory grows with the cases that are added one by one; `add_alike` takes any number at once.
    """

    def __init__(self, profile: str, base_profile: str, rules: ComparisonRules = _DEFAULT) -> None:
        self._names = (profile, base_profile)
        self._rules = rules
        self._before: dict[tuple[str, int], CaseResult] = {}
        self._total: ShareCounts = Counter()
        self._groups: dict[tuple[By, str], ShareCounts] = {}
        self._tags: tuple[_Tags, _Tags] = Counter(), Counter()
        self._measures = MeasureSums()
        self._counts: Counter[Kind] = Counter(dict.fromkeys(KINDS, 0))
        self._changes: list[Change] = []
        self._critical_lost = self._critical_shown = 0
        self._critical_in_part: Counter[tuple[int, int]] = Counter()
        """The critical cases that pass in some of their repeats, by the numbers of their repeats."""
        self._counted_before = self._passed_before = self._missing = self._missing_passed = 0
        self._latencies = array("d"), array("d")
        self._tokens = array("d"), array("d")
        self._costs = [0.0, 0.0]

    @property
    def names(self) -> set[str]:
        """Every bucket and tag that a case has on either side."""
        return {name for side in self._tags for tags in side for name in tags}

    def add_before(self, result: CaseResult) -> None:
        """Add a result of before; add all of them before those of now."""
        self._before[result.case_id, result.occurrence] = result
        self._tags[0][result.tags] += 1
        self._counted_before += result.share is not None
        self._passed_before += result.status == "passed"

    def add(self, now: CaseResult) -> None:
        """Add a result of now."""
        self._tags[1][now.tags] += 1
        before = self._before.pop((now.case_id, now.occurrence), None)
        if before is None:
            self._record("new", "", None, now)
            return
        if before.share is None or now.share is None:
            if now.share is None:
                self._miss(before, is_excused=False)
            self._record("not comparable", _severity_of_missing(before, now), before, now)
            return
        self._count(before, now, before.share, now.share)
        self._count_usage(before, now)
        if now.share > before.share:
            self._record("gained", "", before, now)
        elif now.share < before.share:
            self._record("lost", _severity(before, now), before, now)
        else:
            self._record("same", self._severity_of_score(before, now), before, now)

    def add_alike(self, result: CaseResult, number: int) -> None:
        """Add so many cases that have this result on both sides, without any change, but for `add_usage`."""
        assert result.share is not None
        for tags in self._tags:
            tags[result.tags] += number
        self._counted_before += number
        self._passed_before += number * (result.status == "passed")
        self._counts["same"] += number
        self._count(result, result, result.share, result.share, number)

    def add_usage(self, latencies: Usage, tokens: Usage, costs: tuple[float, float]) -> None:
        """Add the latencies and tokens of cases that have them on both sides, and what all of them cost."""
        for side in (0, 1):
            self._latencies[side].frombytes(latencies[side])
            self._tokens[side].frombytes(tokens[side])
            self._costs[side] += costs[side]

    def result(self) -> Comparison:
        """Return the figures of the comparison, from which `conclude` concludes; nothing can be added afterwards."""
        for before in self._before.values():
            self._miss(before, self._rules.is_selection)
            self._record("gone", "" if self._rules.is_selection else _severity_of_missing(before, None), before, None)
        self._before.clear()
        sides = [self._count_groups(side) for side in self._tags]
        return Comparison(
            *self._names,
            figures=figures("", self._total),
            buckets=self._figures("bucket"),
            tags=self._figures("tag"),
            added=_only_in(sides[1], sides[0]),
            removed=_only_in(sides[0], sides[1]),
            measures=self._measures.result(),
            counts=dict(self._counts),
            counted_before=self._counted_before,
            missing=self._missing,
            is_comparable=2 * self._missing_passed <= self._passed_before,
            edited=sum(change.is_edited and change.change in COMPARED for change in self._changes),
            changes=self._changes,
            critical_lost=self._critical_lost,
            critical_shown=self._critical_shown,
            critical_chance=fsum(
                number * chance_of_flip(*repeats) for repeats, number in self._critical_in_part.items()
            ),
            latency_s=medians(*self._latencies),
            tokens=medians(*self._tokens),
            cost_before=round(self._costs[0], 8),
            cost=round(self._costs[1], 8),
            is_selection=self._rules.is_selection,
        )

    def _figures(self, by: By) -> list[RateComparison]:
        return [figures(name, shares) for (kind, name), shares in sorted(self._groups.items()) if kind == by]

    def _count_groups(self, side: _Tags) -> Counter[tuple[By, str]]:
        """Count the cases of each compared group."""
        counts: Counter[tuple[By, str]] = Counter()
        for tags, number in side.items():
            for group in self._groups_of(tags):
                counts[group] += number
        return counts

    def _groups_of(self, tags: tuple[str, ...]) -> Iterator[tuple[By, str]]:
        """Yield the groups of a case: its bucket, then its other tags."""
        by, named = self._rules.by, self._rules.allowed_drops
        if not by and not named:
            return
        if "bucket" in by and (bucket := self._bucket_of(tags)):
            yield "bucket", bucket
        for tag in dict.fromkeys(tags):
            if ("tag" in by or tag in named) and not ("bucket" in by and tag in self._rules.buckets):
                yield "tag", tag

    def _bucket_of(self, tags: tuple[str, ...]) -> str:
        """Return the bucket among the tags of a case; empty where it has none."""
        return next((tag for tag in tags if tag in self._rules.buckets), "")

    def _miss(self, before: CaseResult, is_excused: bool) -> None:
        """Count a case of before that has no result now."""
        self._missing += before.share is not None
        self._missing_passed += before.status == "passed" and not is_excused

    def _count(self, before: CaseResult, now: CaseResult, base_share: float, share: float, number: int = 1) -> None:
        permuted = None
        if before.repeats != now.repeats or (now.repeats > 1 and not self._rules.has_pass_rule):
            permuted = permuted_variance(before.passed + now.passed, before.repeats, now.repeats)
        shares = (base_share, share, permuted)
        self._total[shares] += number
        for group in self._groups_of(now.tags):
            self._groups.setdefault(group, Counter())[shares] += number
        if _is_critical(before, now):
            if before.passed == before.repeats and not now.passed:
                self._critical_lost += number
                self._critical_shown += number * (min(before.repeats, now.repeats) >= FEWEST_REPEATS)
            elif any(0 < side.passed < side.repeats for side in (before, now)):
                self._critical_in_part[before.repeats, now.repeats] += number

    def _count_usage(self, before: CaseResult, now: CaseResult) -> None:
        if before.measures and now.measures:
            self._measures.add(before.measures, now.measures, self._bucket_of(now.tags))
        if before.latency_s is not None and now.latency_s is not None:
            self._latencies[0].append(before.latency_s)
            self._latencies[1].append(now.latency_s)
        if before.tokens or now.tokens:
            self._tokens[0].append(before.tokens)
            self._tokens[1].append(now.tokens)
        self._costs[0] += before.cost
        self._costs[1] += now.cost

    def _severity_of_score(self, before: CaseResult, now: CaseResult) -> Grade:
        """Grade a lower score of a case that passes as often as before."""
        if before.status != now.status:
            # Neither passed. A wrong answer is less bad than none.
            return "minor" if now.status == "error" else ""
        if before.score is None or now.score is None:
            return ""
        return "minor" if round(before.score - now.score, 9) > (self._rules.allowed_drop or 0.0) else ""

    def _record(self, kind: Kind, severity: Grade, before: CaseResult | None, now: CaseResult | None) -> None:
        self._counts[kind] += 1
        is_edited = before is not None and now is not None and bool(before.digest) and before.digest != now.digest
        if kind == "same" and not severity and not is_edited:
            return
        either = now or before
        assert either is not None
        self._changes.append(
            Change(
                either.case_id,
                either.occurrence,
                kind,
                severity,
                before.status if before else None,
                now.status if now else None,
                before.share if before else None,
                now.share if now else None,
                before.score if before else None,
                now.score if now else None,
                is_edited,
                either.tags,
                now.reason if now else "",
                self._notes(kind, before, now),
                either.position,
                either.is_unnamed,
                (before.passed, before.repeats) if before else (0, 0),
                (now.passed, now.repeats) if now else (0, 0),
            )
        )

    def _notes(self, kind: Kind, before: CaseResult | None, now: CaseResult | None) -> tuple[str, ...]:
        if before is None or now is None or now.status == "passed":
            return ()
        is_failing = kind == "lost" and now.status == "failed"
        earlier = self._rules.earlier_note(before.measures) if is_failing else ""
        return (earlier, *now.notes) if earlier else now.notes


def _only_in(side: Counter[tuple[By, str]], opposite: Counter[tuple[By, str]]) -> list[OneSidedGroup]:
    return [OneSidedGroup(*group, cases=side[group]) for group in sorted(side.keys() - opposite.keys())]


def _severity(before: CaseResult, now: CaseResult) -> Grade:
    """Grade a case that passes less often than before."""
    if before.status != "passed":
        return "minor"
    if _is_critical(before, now):
        return "critical"
    if now.share:
        return "minor"  # some of its repeats still pass
    return "critical" if now.status == "error" else "major"


def _severity_of_missing(before: CaseResult, now: CaseResult | None) -> Grade:
    """Grade a case without a result now: a regression if it passed before and is critical, or is blocked now."""
    if before.status != "passed":
        return ""
    if _is_critical(before, now):
        return "critical"
    return "major" if now is not None and now.status == "blocked" else ""


def _is_critical(before: CaseResult, now: CaseResult | None) -> bool:
    # Also when the tag was taken away since: that must not hide a loss.
    return CRITICAL_TAG in before.tags or (now is not None and CRITICAL_TAG in now.tags)


@lru_cache
def chance_of_flip(before: int, now: int) -> float:
    """How many unchanged cases pass in all repeats before and in none now, for each one seen to pass in some only.

    It depends on how often the case passes; this is the most that it can be.
    """
    chances = []
    for percent in range(1, 100):
        p, q = percent / 100, 1 - percent / 100
        seen_in_part = 1 - (p**before + q**before) * (p**now + q**now)
        chances.append(p**before * q**now / seen_in_part if seen_in_part > 0 else 1.0)
    return max(chances)
