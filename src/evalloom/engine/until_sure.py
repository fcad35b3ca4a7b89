"""`--until-sure`: the cases run in random order, until the results decide the question (WORK-16)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Literal

from msgspec import Struct, structs

from evalloom.analysis.sequence import ConfidenceSequence
from evalloom.analysis.tally import Summary
from evalloom.core.errors import usage_error
from evalloom.core.model import Run, Scored, Status
from evalloom.core.repeats import COUNTED, meets
from evalloom.core.text import pluralize
from evalloom.engine.run import SelectedCase

CONFIDENCE = 0.95
MARGIN = 0.05
Conclusion = Literal["at_least", "below", "not_worse", "worse", "known", "open"]
"""`at_least` and `below` a threshold, `not_worse` and `worse` than a baseline, `known` to the margin, or `open`."""
Shares = Mapping[str, Mapping[tuple[str, int], float]]
"""The share of its repeats that each case passed, by profile, then by id and occurrence."""


class Question(Struct, frozen=True):
    """What is to be decided: a pass rate against a baseline or a threshold; without both, its value."""

    margin: float = MARGIN
    baseline: str = ""
    threshold: float | None = None

    def answer(self, low: float, high: float) -> Conclusion:
        """Return what an interval decides: of the pass rate, or of its difference to the baseline."""
        if self.threshold is None and not self.baseline:
            return "known" if high - low <= 2 * self.margin else "open"
        bound = self.threshold or 0.0
        if high < bound:
            return "worse" if self.baseline else "below"
        if low > bound - self.margin:
            return "not_worse" if self.baseline else "at_least"
        return "open"


class ProfileAnswer(Struct, frozen=True):
    """What is known of one profile; the interval is of its pass rate, or of the difference to the baseline."""

    profile: str
    conclusion: Conclusion
    cases: int
    """How many cases the interval is over."""
    mean: float | None
    low: float
    high: float
    pass_rate_low: float
    pass_rate_high: float
    """The interval of the pass rate, which also holds although the results decided when to stop."""


class Answer(Struct, frozen=True):
    """How a run with --until-sure ended."""

    question: Question
    profiles: list[ProfileAnswer]
    cases: int
    """The selected cases of the dataset."""
    started: int
    """How many of them ran."""

    @property
    def is_sure(self) -> bool:
        return all(profile.conclusion != "open" for profile in self.profiles)

    @property
    def is_bad(self) -> bool:
        """Whether a profile is below the threshold, or worse than the baseline."""
        return any(profile.conclusion in ("below", "worse") for profile in self.profiles)

    @property
    def decides(self) -> bool:
        """Whether it decides about success, and not only about the value of a rate."""
        return self.question.threshold is not None or bool(self.question.baseline)

    @property
    def why_open(self) -> str:
        """What a user may do when all cases ran and the question is not decided."""
        ran = f"all {pluralize(self.cases, 'case')} ran, and the question of --until-sure is not decided"
        return f"{ran}. Add cases, or accept more with --margin"

    def with_intervals(self, summary: Summary) -> Summary:
        """Return a summary with these intervals of the pass rates: others do not hold after stopping by the results."""
        by_name = {answer.profile: answer for answer in self.profiles}
        profiles = {
            name: structs.replace(figures, **_bounds(by_name[name], figures.pass_rate)) if name in by_name else figures
            for name, figures in summary.profiles.items()
        }
        only = _bounds(self.profiles[0], summary.pass_rate) if len(self.profiles) == 1 else {}
        return structs.replace(summary, profiles=profiles, **only)


def _bounds(answer: ProfileAnswer, rate: float | None) -> dict[str, float]:
    """Return the interval of a pass rate, which the runs in flight at the end may have moved."""
    rates = [rate] if rate is not None else []
    return {
        "pass_rate_low": min(answer.pass_rate_low, *rates),
        "pass_rate_high": max(answer.pass_rate_high, *rates),
    }


class UntilSure:
    """Follows the results of a batch in the order in which its cases were drawn."""

    def __init__(
        self, question: Question, profiles: list[str], repeats: int, pass_if: float | None, before: Shares
    ) -> None:
        """`before` has the results of the baseline under the names of these profiles."""
        self.question = question
        self._repeats = repeats
        self._pass_if = pass_if
        self._before = before
        self._order: list[SelectedCase] = []
        # All profiles are to be right at once.
        confidence = 1 - (1 - CONFIDENCE) / max(1, len(profiles))
        self._profiles = {name: _Profile(confidence, bool(question.baseline)) for name in profiles}

    def draw(self, cases: Iterable[SelectedCase], seed: str) -> Iterator[SelectedCase]:
        """Yield the cases in an order that depends on the seed only, until the question is decided."""
        self._order = list(cases)
        random.Random(seed).shuffle(self._order)
        if self.question.baseline and not any(self._is_in_baseline(item) for item in self._order):
            message = f"--against {self.question.baseline}: no case of the dataset is in it, so nothing can be compared"
            raise usage_error("nothing_to_compare", message)
        return takewhile(lambda item: not self.is_decided, self._order)

    def _is_in_baseline(self, item: SelectedCase) -> bool:
        return any((item.case.id, item.occurrence) in shares for shares in self._before.values())

    @property
    def is_decided(self) -> bool:
        return all(profile.is_decided for profile in self._profiles.values())

    def add(self, run: Run, scored: Scored) -> None:
        """Take the result of one run."""
        profile = self._profiles.get(run.profile)
        if profile is None:
            return
        statuses = profile.statuses.setdefault(run.number, [])
        statuses.append(scored.status)
        if len(statuses) < self._repeats:
            return
        # In the order of the draw: the first cases to end are not a random choice, since slow ones may fail more often.
        while not profile.is_decided and profile.next < len(self._order):
            item = self._order[profile.next]
            ended = profile.statuses.get(item.number, [])
            if len(ended) < self._repeats:
                break
            profile.next += 1
            self._count(run.profile, profile, item, ended)

    def _count(self, name: str, profile: _Profile, item: SelectedCase, statuses: list[Status]) -> None:
        counted = [status for status in statuses if status in COUNTED]
        if not counted:
            return
        passed = counted.count("passed")
        count = (passed, len(counted))
        share = passed / len(counted) if self._pass_if is None else float(meets(count, self._pass_if))
        profile.rate.add(share)
        if profile.difference is not None:
            before = self._before.get(name, {}).get((item.case.id, item.occurrence))
            if before is None:
                return
            profile.difference.add(share - before)
        profile.conclusion = self.question.answer(*profile.deciding.interval)

    def answer(self) -> Answer:
        """Return what is known now."""
        profiles = [
            ProfileAnswer(
                name,
                profile.conclusion,
                profile.deciding.count,
                profile.deciding.mean,
                *profile.deciding.interval,
                *profile.rate.interval,
            )
            for name, profile in self._profiles.items()
        ]
        started = len({number for profile in self._profiles.values() for number in profile.statuses})
        return Answer(self.question, profiles, len(self._order), started)


class _Profile:
    """The results of one profile."""

    def __init__(self, confidence: float, has_baseline: bool) -> None:
        self.rate = ConfidenceSequence(0.0, 1.0, confidence)
        self.difference = ConfidenceSequence(-1.0, 1.0, confidence) if has_baseline else None
        """The pass rate less that of the baseline, over the cases of both."""
        self.statuses: dict[int, list[Status]] = {}
        self.next = 0
        self.conclusion: Conclusion = "open"
        """Once decided, further cases do not change it."""

    @property
    def is_decided(self) -> bool:
        return self.conclusion != "open"

    @property
    def deciding(self) -> ConfidenceSequence:
        return self.rate if self.difference is None else self.difference
