"""Counts the results of a batch run by run. Memory grows by one number per run, and with each new set of tags."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter

from msgspec import Struct

from evalloom.analysis.statistics import mean, percentile, wilson
from evalloom.core.model import NO_USAGE, Record, Run, Scored, Status, Usage

SHOWN_FAILURES = 10
STATUSES: tuple[Status, ...] = ("passed", "failed", "error", "skipped", "blocked", "unscored")

NOTHING_EXPECTED = "nothing is expected of it"
_MOST_REASONS = 100
_UNANSWERED = frozenset({"skipped", "blocked"})
_Rank = tuple[float, int, str, int]
_RankedRuns = list[tuple[_Rank, Run, Scored]]
"""Runs, the worst first."""


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of a group of runs. The rates are None if no run passed, failed or met an error."""

    total: int
    passed: int
    failed: int
    error: int
    skipped: int
    blocked: int
    unscored: int
    pass_rate: float | None
    pass_rate_low: float | None
    pass_rate_high: float | None
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

    p50_latency_s: float | None
    p95_latency_s: float | None
    mean_latency_s: float | None


class Summary(Figures, frozen=True, kw_only=True):
    """The figures of a batch: the object that `--json` prints."""

    batch: str = ""
    path: str = ""
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

    __slots__ = ("counts", "durations", "finished", "score_sum", "scores", "spent", "started")

    def __init__(self) -> None:
        self.counts: dict[Status, int] = {}
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
    def counted(self) -> int:
        """The denominator of the pass rate."""
        return self.count("passed") + self.count("failed") + self.count("error")

    @property
    def pass_rate(self) -> float | None:
        return self.count("passed") / self.counted if self.counted else None

    @property
    def pass_rate_bounds(self) -> tuple[float, float] | tuple[None, None]:
        return wilson(self.count("passed"), self.counted) if self.counted else (None, None)

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

    The caller must not add a run twice.
    """

    def __init__(self) -> None:
        # Keyed by all tags of a run together, so that a run with many tags is counted only once.
        self._groups: dict[tuple[str, tuple[str, ...]], Group] = {}
        self.order: list[str] = []
        """The profiles in the order of the request."""
        self._failed: _RankedRuns = []
        self._errors: _RankedRuns = []
        self.counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self.spent = UsageTotals()
        self.reasons: dict[tuple[Status, str], int] = {}
        """How often each reason skipped, blocked or left runs unscored; only the first hundred reasons are counted."""

    def add(self, run: Run, scored: Scored) -> None:
        """Count one run."""
        key = (run.profile, run.tags)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group()
        group.add(run, scored)
        status = scored.status
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
            reason = (status, next(matching, NOTHING_EXPECTED))
            if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def group(self, profile: str | None = None, tag: str | None = None) -> Group:
        """Return the runs of a profile, of a tag, or of both; without arguments, all runs."""
        return _merged(
            group
            for (name, tags), group in self._groups.items()
            if (profile is None or name == profile) and (tag is None or tag in tags)
        )

    def profiles(self) -> list[str]:
        """Return the profiles that were run, in the order of the request, then of their first run."""
        ran = dict.fromkeys(profile for profile, _ in self._groups)
        return [name for name in dict.fromkeys([*self.order, *ran]) if name in ran]

    def tags(self) -> list[str]:
        """Return the tags of all runs, sorted."""
        return sorted({tag for _, tags in self._groups for tag in tags})

    def worst(self) -> list[tuple[Run, Scored]]:
        """Return up to ten failures, the lowest score first, then errors; half of each if there are many of both."""
        half = SHOWN_FAILURES // 2
        errors = self._errors[: max(half, SHOWN_FAILURES - len(self._failed))]
        failed = self._failed[: SHOWN_FAILURES - len(errors)]
        return [(run, scored) for _, run, scored in failed + errors]

    def summary(self, batch: str = "", path: str = "", duration_s: float | None = None) -> Summary:
        """Return the figures of the batch. `duration_s` defaults to the time from the first run to the last."""
        by_profile = {name: self.group(profile=name) for name in self.profiles()}
        total = _merged(by_profile.values())
        return Summary(
            batch=batch,
            path=path,
            profiles={name: _profile_figures(group) for name, group in by_profile.items()},
            **_figures(total, duration_s),
        )


def _merged(groups: Iterable[Group]) -> Group:
    merged = Group()
    for group in groups:
        merged.merge(group)
    return merged


def _add_worst(worst: _RankedRuns, run: Run, scored: Scored) -> None:
    """Add a run if it is among the worst; ties do not depend on which run finished first."""
    rank = (scored.score or 0.0, run.number, run.profile, run.repeat)
    if len(worst) < SHOWN_FAILURES or rank < worst[-1][0]:
        insort(worst, (rank, run, scored), key=itemgetter(0))
        del worst[SHOWN_FAILURES:]


def _figures(group: Group, duration_s: float | None = None) -> Record:
    low, high = group.pass_rate_bounds
    return {
        "total": group.total,
        **{status: group.count(status) for status in STATUSES},
        "pass_rate": group.pass_rate,
        "pass_rate_low": low,
        "pass_rate_high": high,
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
        **_figures(group),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
