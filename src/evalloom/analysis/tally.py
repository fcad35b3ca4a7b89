"""Counts the results of a batch run by run. Memory grows by a few numbers per run, and with each new set of tags."""

from __future__ import annotations

import sys
from array import array
from bisect import insort
from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter

from msgspec import Struct, structs

from evalloom.analysis.repeats import CaseCounts, Shares
from evalloom.analysis.statistics import mean, percentile
from evalloom.core.model import NO_USAGE, Record, Run, Scored, Status, Usage
from evalloom.core.repeats import COUNTED, Count, meets

SHOWN_FAILURES = 10
STATUSES: tuple[Status, ...] = ("passed", "failed", "error", "skipped", "blocked", "unscored")

NOTHING_EXPECTED = "nothing is expected of it"
_UNANSWERED = frozenset({"skipped", "blocked"})
_Rank = tuple[float, int, str, int]
_RankedRuns = list[tuple[_Rank, Run, Scored]]
"""Runs, the worst first."""


class Counts(Struct, frozen=True, kw_only=True):
    """How the runs of a group ended. The rates are None if no run passed, failed or met an error.

    `pass_rate` is the mean of the cases' shares: how many of a case's runs passed, of those that passed, failed or met
    an error. With a pass rule, it is the share of cases that meet it. Its interval is over cases.
    """

    total: int
    passed: int
    failed: int
    error: int
    skipped: int
    blocked: int
    unscored: int
    cases: int
    """How many cases `pass_rate` is over."""
    failing: int
    """How many do not meet the pass rule; without one, how many have a run that did not pass.

    A case under two profiles passes or fails twice.
    """
    pass_rate: float | None
    pass_rate_low: float | None
    pass_rate_high: float | None


class Figures(Counts, frozen=True, kw_only=True):
    """The figures of a group of runs: how they ended, and what they took."""

    tokens: int
    cost: float
    cached: int
    duration_s: float
    retries: int
    unpriced: int
    estimated: int = 0
    """The calls whose tokens are estimated, because the server sent no usage."""


class ProfileFigures(Figures, frozen=True, kw_only=True):
    """The figures of one profile; latencies are those of runs with an answer."""

    flaky: int
    """How many cases passed in some of their repeats and not in others."""
    pass_at: dict[int, float]
    """pass@k by k, if every case was repeated."""
    pass_hat: dict[int, float]
    """pass^k by k, if every case was repeated."""
    p50_latency_s: float | None
    p95_latency_s: float | None
    mean_latency_s: float | None


class Summary(Figures, frozen=True, kw_only=True):
    """The figures of a batch: the object that `--json` prints."""

    batch: str = ""
    path: str = ""
    pass_if: float | None = None
    """The share of its repeats that must pass for a case to pass."""
    profiles: dict[str, ProfileFigures]


class UsageTotals:
    """Tokens, cost and retries of all llm calls so far, by targets and judges."""

    __slots__ = ("cached", "cost", "estimated", "retries", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = self.cached = self.retries = self.unpriced = self.estimated = 0
        self.cost = 0.0

    def add(self, usage: Usage) -> None:
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        self.cached += usage.cached
        self.retries += usage.retries
        self.unpriced += usage.unpriced
        self.estimated += usage.estimated

    def merge(self, totals: UsageTotals) -> None:
        self.tokens += totals.tokens
        self.cost += totals.cost
        self.cached += totals.cached
        self.retries += totals.retries
        self.unpriced += totals.unpriced
        self.estimated += totals.estimated


class Group:
    """Runs that are counted together."""

    __slots__ = ("counts", "durations", "finished", "pooled", "score_sum", "scores", "shares", "spent", "started")

    def __init__(self, pass_if: float | None = None) -> None:
        self.counts: dict[Status, int] = {}
        self.shares = Shares(pass_if)
        """The shares of each case under each profile."""
        self.pooled = self.shares
        """The shares of each case under all its profiles together, which a pass rate is over (WORK-4)."""
        self.spent = UsageTotals()
        self.durations = array("d")
        self.score_sum = 0.0
        self.scores = 0
        self.started, self.finished = float("inf"), float("-inf")

    def add(self, run: Run, scored: Scored) -> None:
        status = scored.status
        self.counts[status] = self.counts.get(status, 0) + 1
        # An answer from the cache says nothing about how long it takes to get one.
        if not run.error and status not in _UNANSWERED and not run.usage.cached:
            self.durations.append(run.latency_s)
        if scored.score is not None:
            self.score_sum += scored.score
            self.scores += 1
        if run.usage is not NO_USAGE:
            self.spent.add(run.usage)
        if scored.usage is not NO_USAGE:
            self.spent.add(scored.usage)
        if run.started_at:
            started = datetime.fromisoformat(run.started_at).timestamp()
            self._extend(started, started + run.duration_s)

    def _extend(self, started: float, finished: float) -> None:
        if started < self.started:
            self.started = started
        if finished > self.finished:
            self.finished = finished

    def merge(self, group: Group) -> None:
        """Add the runs of another group."""
        for status, number in group.counts.items():
            self.counts[status] = self.counts.get(status, 0) + number
        self.shares.merge(group.shares)
        self.durations += group.durations
        self.score_sum += group.score_sum
        self.scores += group.scores
        self.spent.merge(group.spent)
        self._extend(group.started, group.finished)

    def count(self, status: Status) -> int:
        return self.counts.get(status, 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def mean_score(self) -> float | None:
        return self.score_sum / self.scores if self.scores else None

    @property
    def mean_latency_s(self) -> float | None:
        return mean(self.durations) if self.durations else None

    def latencies(self, *shares: float) -> list[float | None]:
        """The percentiles of the latencies, for shares from 0 to 1; None where no run gave an answer."""
        durations = sorted(self.durations)
        return [percentile(durations, share) if durations else None for share in shares]

    @property
    def duration_s(self) -> float:
        """From the start of the first run to the end of the last."""
        return max(0.0, self.finished - self.started)


class Tally:
    """Counts runs as they finish; `counts` and `spent` are up to date at any moment.

    The caller must not add a run twice. With `pass_if`, a case passes when that share of its repeats does.
    """

    _most_reasons = 100

    def __init__(self, pass_if: float | None = None) -> None:
        self.pass_if = pass_if
        # Keyed by all tags of a run together, so that a run with many tags is counted only once.
        self._groups: dict[tuple[str, tuple[str, ...]], Group] = {}
        self._cases: dict[str, CaseCounts] = {}
        # A case is one cluster under all its profiles, too.
        self._cases_of_all = CaseCounts()
        self._shares_of_all: dict[tuple[str, ...], Shares] = {}
        self.order: list[str] = []
        """The profiles in the order of the request."""
        self._failed: _RankedRuns = []
        self._errors: _RankedRuns = []
        self.counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self.spent = UsageTotals()
        self.reasons: dict[tuple[Status, str], int] = {}
        """How often each reason skipped, blocked or left runs unscored; only the first hundred reasons are counted."""

    @property
    def deciding(self) -> Tally:
        """The counts that decide whether the batch is a success: of all runs, unless some are in quarantine."""
        return self

    def add(self, run: Run, scored: Scored) -> None:
        """Count one run."""
        self._group_of(run.profile, run.tags).add(run, scored)
        status = scored.status
        if status in COUNTED:
            self._count_case(run.profile, run.tags, run.number, status == "passed")
        self.counts[status] += 1
        if run.usage is not NO_USAGE:
            self.spent.add(run.usage)
        if scored.usage is not NO_USAGE:
            self.spent.add(scored.usage)
        if status == "failed":
            _add_worst(self._failed, run, scored)
        elif status == "error":
            _add_worst(self._errors, run, scored)
        elif status != "passed":
            matching = (verdict.reason for verdict in scored.verdicts if verdict.status == status)
            self._add_reason((status, next(matching, NOTHING_EXPECTED)))

    def merge(self, part: PartialTally) -> None:
        """Count the runs that another process has counted; parts have to come in the order of the runs."""
        for (profile, tags), group in part._groups.items():
            self._group_of(profile, tags).merge(group)
        for counted in part.counted:
            self._count_case(*counted)
        for status, number in part.counts.items():
            self.counts[status] += number
        self.spent.merge(part.spent)
        for _, run, scored in part._failed:
            _add_worst(self._failed, run, scored)
        for _, run, scored in part._errors:
            _add_worst(self._errors, run, scored)
        for reason, number in part.reasons.items():
            self._add_reason(reason, number)

    def _group_of(self, profile: str, tags: tuple[str, ...]) -> Group:
        group = self._groups.get((profile, tags))
        if group is None:
            group = self._groups[profile, tags] = Group(self.pass_if)
        return group

    def _add_reason(self, reason: tuple[Status, str], number: int = 1) -> None:
        # Always counted where nothing is expected, because the exit code depends on it.
        if reason in self.reasons or len(self.reasons) < self._most_reasons or reason[1] == NOTHING_EXPECTED:
            self.reasons[reason] = self.reasons.get(reason, 0) + number

    def _count_case(self, profile: str, tags: tuple[str, ...], number: int, has_passed: bool) -> None:
        cases = self._cases.get(profile)
        if cases is None:
            cases = self._cases[profile] = CaseCounts()
        old = cases.get(number)
        new = (old[0] + has_passed, old[1] + 1)
        cases.set(number, new)
        self._group_of(profile, tags).shares.move(old, new)
        shares = self._shares_of_all.get(tags)
        if shares is None:
            shares = self._shares_of_all[tags] = Shares()
        before = self._cases_of_all.get(number)
        was, now = self._unit(old), self._unit(new)
        after = (before[0] + now[0] - was[0], before[1] + now[1] - was[1])
        self._cases_of_all.set(number, after)
        shares.move(before, after)

    def _unit(self, count: Count) -> Count:
        """Return how a case under one profile counts among all profiles: by its runs, or by its pass rule."""
        if self.pass_if is None or not count[1]:
            return count
        return int(meets(count, self.pass_if)), 1

    def count_of(self, run: Run) -> Count:
        """Return how many runs of a run's case and profile passed, and how many counted."""
        cases = self._cases.get(run.profile)
        return cases.get(run.number) if cases else (0, 0)

    def group(self, profile: str | None = None, tag: str | None = None) -> Group:
        """Return the runs of a profile, of a tag, or of both; without arguments, all runs."""
        merged = Group(self.pass_if)
        for (name, tags), group in self._groups.items():
            if (profile is None or name == profile) and (tag is None or tag in tags):
                merged.merge(group)
        if profile is None and len(self._cases) > 1:
            merged.pooled = Shares()
            for tags, shares in self._shares_of_all.items():
                if tag is None or tag in tags:
                    merged.pooled.merge(shares)
        return merged

    def by_tag(self) -> dict[str, Group]:
        """Return the runs of each tag, in one pass: there may be as many tags as cases."""
        merged = {tag: Group(self.pass_if) for tag in self.tags()}
        for (_, tags), group in self._groups.items():
            for tag in dict.fromkeys(tags):
                merged[tag].merge(group)
        if len(self._cases) > 1:
            for group in merged.values():
                group.pooled = Shares()
            for tags, shares in self._shares_of_all.items():
                for tag in dict.fromkeys(tags):
                    merged[tag].pooled.merge(shares)
        return merged

    @property
    def has_repeats(self) -> bool:
        """Whether a case has several runs under one profile."""
        return any(counted > 1 for group in self._groups.values() for _, counted in group.shares.counts)

    def profiles(self) -> list[str]:
        """Return the profiles that were run, in the order of the request, then of their first run."""
        ran = dict.fromkeys(profile for profile, _ in self._groups)
        return [name for name in dict.fromkeys([*self.order, *ran]) if name in ran]

    def tags(self) -> list[str]:
        """Return the tags of all runs, sorted."""
        return sorted({tag for _, tags in self._groups for tag in tags})

    def worst(self) -> list[tuple[Run, Scored]]:
        """Return up to ten failures, the lowest score first, then errors; half of each if there are many of both.

        Of the repeats of a case it is the worst.
        """
        failed_cases = {_case_of(run) for _, run, _ in self._failed}
        only_errors = [item for item in self._errors if _case_of(item[1]) not in failed_cases]
        errors = only_errors[: max(SHOWN_FAILURES // 2, SHOWN_FAILURES - len(self._failed))]
        failed = self._failed[: SHOWN_FAILURES - len(errors)]
        return [(run, scored) for _, run, scored in failed + errors]

    def summary(self, batch: str = "", path: str = "", duration_s: float | None = None) -> Summary:
        """Return the figures of the batch. `duration_s` defaults to the time from the first run to the last."""
        profiles = {name: _profile_figures(self.group(profile=name)) for name in self.profiles()}
        figures = _figures(self.group(), duration_s)
        return Summary(batch=batch, path=path, pass_if=self.pass_if, profiles=profiles, **figures)


class PartialTally(Tally):
    """Counts some runs of a batch in another process, for `Tally.merge`."""

    _most_reasons = sys.maxsize  # which of them are the first is known in the end

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, tuple[str, ...], int, bool]] = []
        """The profile, tags and number of each run that counts, and whether it passed: a case may be in other parts."""

    def _count_case(self, profile: str, tags: tuple[str, ...], number: int, has_passed: bool) -> None:
        self.counted.append((profile, tags, number, has_passed))


def _case_of(run: Run) -> tuple[str, int]:
    return run.profile, run.number


def _add_worst(worst: _RankedRuns, run: Run, scored: Scored) -> None:
    """Add a run if its case is among the worst; ties do not depend on which run finished first."""
    rank = (scored.score or 0.0, run.number, run.profile, run.repeat)
    if len(worst) == SHOWN_FAILURES and rank > worst[-1][0]:
        return
    for index, (other_rank, other, _) in enumerate(worst):
        if _case_of(other) == _case_of(run):
            if other_rank < rank:
                return
            del worst[index]
            break
    insort(worst, (rank, run, scored), key=itemgetter(0))
    del worst[SHOWN_FAILURES:]


def counts_of(statuses: Mapping[Status, int], pooled: Shares, failing: int) -> Counts:
    """Return the counts of a group: of its runs by status, and of its cases, which the pass rate is over."""
    low, high = pooled.bounds
    return Counts(
        total=sum(statuses.values()),
        **{status: statuses.get(status, 0) for status in STATUSES},
        cases=pooled.cases,
        failing=failing,
        pass_rate=pooled.pass_rate,
        pass_rate_low=low,
        pass_rate_high=high,
    )


def _figures(group: Group, duration_s: float | None = None) -> Record:
    return {
        **structs.asdict(counts_of(group.counts, group.pooled, group.shares.failing)),
        "tokens": group.spent.tokens,
        # The last digits of a sum of floats depend on which run finished first, and would show as differences.
        "cost": round(group.spent.cost, 8),
        "cached": group.spent.cached,
        "duration_s": round(group.duration_s if duration_s is None else duration_s, 6),
        "retries": group.spent.retries,
        "unpriced": group.spent.unpriced,
        "estimated": group.spent.estimated,
    }


def _profile_figures(group: Group) -> ProfileFigures:
    p50, p95 = group.latencies(0.5, 0.95)
    return ProfileFigures(
        p50_latency_s=_rounded(p50),
        p95_latency_s=_rounded(p95),
        mean_latency_s=_rounded(group.mean_latency_s),
        flaky=group.shares.flaky,
        pass_at=group.shares.pass_at(),
        pass_hat=group.shares.pass_hat(),
        **_figures(group),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
