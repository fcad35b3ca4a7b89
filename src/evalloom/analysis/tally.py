"""What a batch comes to, counted run by run: memory grows by one number a run and by each new set of tags."""

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
_Kept = list[tuple[_Rank, Run, Scored]]


class Figures(Struct, frozen=True, kw_only=True):
    """What some runs come to. The rates are None when no run passed, failed or met an error."""

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


class ProfileFigures(Figures, frozen=True, kw_only=True):
    """What the runs of one profile come to; the latencies are those of the runs that gave an answer."""

    p50_latency_s: float | None
    p95_latency_s: float | None
    mean_latency_s: float | None


class Summary(Figures, frozen=True, kw_only=True):
    """What a batch comes to: the object that `--json` prints."""

    batch: str = ""
    path: str = ""
    profiles: dict[str, ProfileFigures]


class Spent:
    """What the calls to llms took so far, those of targets and of judges together."""

    __slots__ = ("cached", "cost", "retries", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = self.cached = self.retries = self.unpriced = 0
        self.cost = 0.0

    def add(self, usage: Usage) -> None:
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        self.cached += usage.cached
        self.retries += usage.retries
        self.unpriced += usage.unpriced

    def include(self, other: Spent) -> None:
        self.tokens += other.tokens
        self.cost += other.cost
        self.cached += other.cached
        self.retries += other.retries
        self.unpriced += other.unpriced


class Group:
    """Runs that are counted together."""

    __slots__ = ("counts", "durations", "finished", "score_sum", "scores", "spent", "started")

    def __init__(self) -> None:
        self.counts: dict[Status, int] = {}
        self.spent = Spent()
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
            self.span(started, started + run.duration_s)

    def span(self, started: float, finished: float) -> None:
        if started < self.started:
            self.started = started
        if finished > self.finished:
            self.finished = finished

    def include(self, other: Group) -> None:
        """Counts the runs of another group here too."""
        for status, number in other.counts.items():
            self.counts[status] = self.counts.get(status, 0) + number
        self.durations += other.durations
        self.score_sum += other.score_sum
        self.scores += other.scores
        self.spent.include(other.spent)
        self.span(other.started, other.finished)

    def count(self, status: Status) -> int:
        return self.counts.get(status, 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def counted(self) -> int:
        """How many runs the pass rate is a share of."""
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
    """Counts runs as they finish: `counts` and `spent` tell at any moment how far it has come.

    The caller sees to it that no run is added twice.
    """

    def __init__(self) -> None:
        # By tags as they stand on the run, not by each tag: one addition a run, however many tags it has.
        self._groups: dict[tuple[str, tuple[str, ...]], Group] = {}
        self.order: list[str] = []
        """The profiles as they were asked for."""
        self._failed: _Kept = []
        self._errors: _Kept = []
        self.counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self.spent = Spent()
        self.reasons: dict[tuple[Status, str], int] = {}
        """Why runs were skipped, blocked or not scored, the first hundred reasons of them, and how often."""

    def add(self, run: Run, scored: Scored) -> None:
        """Counts one run."""
        place = (run.profile, run.tags)
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = Group()
        group.add(run, scored)
        status = scored.status
        self.counts[status] += 1
        if run.usage is not NO_USAGE:
            self.spent.add(run.usage)
        if scored.usage is not NO_USAGE:
            self.spent.add(scored.usage)
        if status == "failed":
            _keep(self._failed, run, scored)
        elif status == "error":
            _keep(self._errors, run, scored)
        elif status != "passed":
            self._note(scored)

    def _note(self, scored: Scored) -> None:
        reason = next((one.reason for one in scored.verdicts if one.status == scored.status), NOTHING_EXPECTED)
        why = (scored.status, reason)
        if why in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[why] = self.reasons.get(why, 0) + 1

    def group(self, profile: str | None = None, tag: str | None = None) -> Group:
        """The runs of one profile, with one tag, or both; all of them when neither is given."""
        return _together(
            group
            for (of, tags), group in self._groups.items()
            if (profile is None or of == profile) and (tag is None or tag in tags)
        )

    def profiles(self) -> list[str]:
        """The profiles that were run, in the order in which they were asked for or else first run."""
        ran = dict.fromkeys(profile for profile, _ in self._groups)
        return [name for name in dict.fromkeys([*self.order, *ran]) if name in ran]

    def tags(self) -> list[str]:
        """The tags that any run has, sorted."""
        return sorted({tag for _, tags in self._groups for tag in tags})

    def worst(self) -> list[tuple[Run, Scored]]:
        """Up to ten failures, the lowest score first, then errors: half of each when there are many of both."""
        half = SHOWN_FAILURES // 2
        errors = self._errors[: max(half, SHOWN_FAILURES - len(self._failed))]
        failed = self._failed[: SHOWN_FAILURES - len(errors)]
        return [(run, scored) for _, run, scored in failed + errors]

    def summary(self, batch: str = "", path: str = "", duration_s: float | None = None) -> Summary:
        """The whole batch. Without `duration_s` it lasted from its first run to its last, pauses included."""
        by_profile = {name: self.group(profile=name) for name in self.profiles()}
        every = _together(by_profile.values())
        return Summary(
            batch=batch,
            path=path,
            profiles={name: _profile_figures(group) for name, group in by_profile.items()},
            **_figures(every, duration_s),
        )


def _together(groups: Iterable[Group]) -> Group:
    together = Group()
    for group in groups:
        together.include(group)
    return together


def _keep(kept: _Kept, run: Run, scored: Scored) -> None:
    """Keeps the run when it is among the worst; the order does not depend on which run finished first."""
    rank = (scored.score or 0.0, run.number, run.profile, run.repeat)
    if len(kept) < SHOWN_FAILURES or rank < kept[-1][0]:
        insort(kept, (rank, run, scored), key=itemgetter(0))
        del kept[SHOWN_FAILURES:]


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
