"""The figures of a report, counted while its runs go by: rates, causes of failures, the heat map, distributions."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from msgspec import structs

from evalloom.analysis.causes import Cause, Key, cause_key, group_failures
from evalloom.analysis.statistics import percentile
from evalloom.analysis.tally import Group, ProfileFigures, Summary, Tally
from evalloom.core.model import Record, Run, Scored
from evalloom.core.text import shorten
from evalloom.reports.run_report import RunReport, label, not_passed

__all__ = ["Cause", "Cell", "Column", "Failure", "HeatRow", "Overview", "ProfileFigures", "Summary", "failure_of"]

MOST_TAGS = 40
_LONGEST_REASON = 500
_COLUMNS = 10


class Failure(NamedTuple):
    """Why a run did not pass: the row that `group_failures` groups."""

    case_id: str
    step: str
    check: str
    reason: str


class Cell(NamedTuple):
    """The pass rate of a group of runs; None if none of them counts."""

    rate: float | None
    low: float | None
    high: float | None
    cases: int
    runs: int


class HeatRow(NamedTuple):
    """One tag: a cell for each profile, and one for all of them."""

    tag: str
    cells: list[Cell]


class Column(NamedTuple):
    """The values from `start` on, up to the next column; the last one has all that are larger, or ends at `end`."""

    start: float
    runs: int
    end: float | None = None


def failure_of(run: Run, scored: Scored) -> Failure:
    """Return the first failing step, the check that decided, and its reason."""
    verdict = next(iter(not_passed(scored)), None)
    check, reason = (label(verdict), verdict.reason or verdict.status) if verdict else ("", "")
    if run.error:
        check, reason = "", run.error
    reason = reason or run.blocked or run.skipped
    return Failure(run.case_id, scored.step, check, shorten(reason, _LONGEST_REASON))


class Overview:
    """Counts the runs of a batch; add all of them, then read the figures."""

    def __init__(self, report: RunReport) -> None:
        self.tally = Tally(report.summary.get("pass_if"))
        self.tally.order = [profile.get("name", "") for profile in report.batch.get("profiles", ())]
        self.failures: list[Failure] = []
        self._tags: Counter[str] = Counter()
        self._scores = array("d")
        self._report = report

    def add(self, run: Run, scored: Scored) -> Failure | None:
        """Count a run, and return why it did not pass."""
        self.tally.add(run, scored)
        self._tags.update(run.tags)
        if scored.score is not None:
            self._scores.append(scored.score)
        if scored.status == "passed":
            return None
        failure = failure_of(run, scored)
        if scored.status in ("failed", "error"):
            self.failures.append(failure)
        return failure

    def summary(self) -> Summary:
        """Return the figures of the batch: those of the terminal and of `--json`, from the same counts (WORK-5)."""
        given = self._report.summary
        summary = self.tally.summary(given.get("batch", ""), given.get("path", ""), given.get("duration_s"))
        if not self._report.answer:
            return summary
        # Other intervals do not hold after a stop that the results decided (WORK-16).
        profiles = {
            name: structs.replace(figures, **_bounds(given.get("profiles", {}).get(name, {})))
            for name, figures in summary.profiles.items()
        }
        return structs.replace(summary, profiles=profiles, **_bounds(given))

    def causes(self) -> list[Cause]:
        return group_failures(self.failures)

    def heat_map(self) -> list[HeatRow]:
        """Return the pass rates by tag and profile: the most frequent tags, the lowest rate first."""
        profiles = self.tally.profiles()
        rows = []
        for tag, _ in self._tags.most_common(MOST_TAGS):
            cells = [_cell(self.tally.group(profile, tag)) for profile in profiles]
            rows.append(HeatRow(tag, cells if len(cells) == 1 else [*cells, _cell(self.tally.group(tag=tag))]))
        return sorted(rows, key=lambda row: (row.cells[-1].rate is None, row.cells[-1].rate or 0.0, row.tag))

    @property
    def tags(self) -> list[str]:
        """All tags, the most frequent first."""
        return [tag for tag, _ in self._tags.most_common()]

    def scores(self) -> list[Column]:
        """Return the distribution of scores, in tenths where they are shares."""
        if not self._scores:
            return []
        if min(self._scores) >= 0 and max(self._scores) <= 1:
            counts = Counter(min(floor(score * 10 + 1e-9), 9) for score in self._scores)
            return [Column(tenth / 10, counts[tenth], 1.0 if tenth == 9 else None) for tenth in range(10)]
        return histogram(self._scores)

    def latencies(self) -> list[Column]:
        return histogram(self.tally.group().durations)


def causes_by_key(causes: Sequence[Cause]) -> dict[Key, int]:
    """Return the number of each cause by its key."""
    return {cause_key(cause.step, cause.check, cause.example): number for number, cause in enumerate(causes)}


def histogram(values: Sequence[float]) -> list[Column]:
    """Count values in about ten columns with round bounds; the last one has all that are larger."""
    if not values:
        return []
    ordered = sorted(values)
    low, quarter, high = min(0.0, ordered[0]), percentile(ordered, 0.75), percentile(ordered, 0.98)
    if quarter > low:
        # A long tail, such as that of latencies, would leave most values in the first column.
        high = min(high, low + 2.5 * (quarter - low))
    width = _round_up((high - low) / (_COLUMNS - 1)) if high > low else 1.0
    first = floor(low / width)
    # Ten columns from a wide range of negative numbers may end before the largest.
    counts = Counter(min(floor(value / width + 1e-9), first + _COLUMNS - 1) for value in ordered)
    last = max(counts)
    return [Column(round(number * width, 12), counts[number]) for number in range(first, max(last, first + 1) + 1)]


def _round_up(width: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** floor(log10(width)) if width > 0 else 1.0
    return next((step * power for step in (1, 2, 5, 10) if ceil(width / power * 1e9) <= step * 1e9), 10 * power)


def _bounds(given: Record) -> Record:
    return {name: given[name] for name in ("pass_rate_low", "pass_rate_high") if name in given}


def _cell(group: Group) -> Cell:
    low, high = group.pooled.bounds
    return Cell(group.pooled.pass_rate, low, high, group.pooled.cases, group.total)
