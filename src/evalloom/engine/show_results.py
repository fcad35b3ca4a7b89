"""Results in a shell and in a notebook: their figures, and the first runs that did not pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalloom.batchlog import manifest
from evalloom.core.model import Record, Run, Scored, Status
from evalloom.core.text import one_line, percent, pluralize, printable
from evalloom.engine.plan import CHECK_LISTS
from evalloom.engine.resume import DamagedRun, case_of
from evalloom.reports.run_report import label, not_passed

if TYPE_CHECKING:
    from evalloom.engine.results import Results

_SHOWN = 5
_SHOWN_IN_CELL = 10
_WIDTH = 160
_CELL_WIDTH = 400


class FailedRun(Struct, frozen=True):
    """A run that failed or met an error. `check` and `reason` are those of the first check that decided it."""

    case_id: str
    profile: str
    repeat: int
    status: Status
    check: str
    reason: str
    step: str
    """The first step that failed."""
    output: Any
    """The value that the target returned; None for an error."""
    inputs: Record
    """The inputs of the case; empty if the log does not give them."""
    run: Run
    scored: Scored

    def __repr__(self) -> str:
        check = f" {printable(self.check)}:" if self.check else ""
        return f"<{self.status} {printable(self.name)}:{check} {one_line(self.reason, _WIDTH)}>"

    @property
    def name(self) -> str:
        """The id of the case, with the number of the repeat after the first."""
        return f"{self.case_id} (repeat {self.repeat})" if self.repeat else self.case_id


def failed_runs(results: Results) -> Iterator[FailedRun]:
    """Yield the runs that failed or met an error, in the order of the cases."""
    if not results.summary.failed + results.summary.error:
        return
    lists = manifest(results.path).options.get(CHECK_LISTS, "plain")
    for run, scored in results:
        if scored.status in ("failed", "error"):
            try:
                inputs = case_of(run, results.catalog.formats, lists).inputs
            except DamagedRun:
                inputs = {}
            yield _failed_run(run, scored, inputs)


def _failed_run(run: Run, scored: Scored, inputs: Record) -> FailedRun:
    verdict = next(iter(not_passed(scored)), None)
    check, reason = (label(verdict), verdict.reason or verdict.status) if verdict else ("", "")
    return FailedRun(
        run.case_id,
        run.profile,
        run.repeat,
        scored.status,
        "" if run.error else check,
        run.error or reason,
        scored.step,
        None if run.error else run.output.value,
        inputs,
        run,
        scored,
    )


def results_text(results: Results) -> str:
    """Return the figures of a batch in one line, and a line for each of its first failures."""
    summary = results.summary
    lines = [f"<Results of {summary.batch}: {pluralize(summary.total, 'run')}, {_rate(results)}"]
    lines += [f"  {_counts(results)}"]
    lines += [f"  stopped early: {one_line(results.stopped, _WIDTH)}"] if results.stopped else []
    lines += [f"  {str(failure)[1:-1]}" for failure in islice(failed_runs(results), _SHOWN)]
    more = summary.failed + summary.error - _SHOWN
    lines += [f"  … and {more:,} more in .failures"] if more > 0 else []
    return "\n".join(lines) + ">"


def results_html(results: Results) -> str:
    """Return the same as HTML, with the outputs of the first failures."""
    from evalloom.ui.charts import interval
    from evalloom.ui.notebook import cell, interval_chart, paragraph, table
    from evalloom.ui.text import as_text

    summary = results.summary
    parts = [paragraph(_rate(results), "lead")]
    rate, low, high = summary.pass_rate, summary.pass_rate_low, summary.pass_rate_high
    if rate is not None and low is not None and high is not None:
        parts.append(interval_chart(interval(rate, low, high)))
    parts.append(paragraph(f"{pluralize(summary.total, 'run')}: {_counts(results)}"))
    if results.stopped:
        parts.append(paragraph(f"stopped early: {results.stopped}", "bad"))
    rows = [
        [
            failure.name,
            *([failure.profile] if len(summary.profiles) > 1 else []),
            failure.status,
            one_line(": ".join(filter(None, [failure.check, failure.reason])), _CELL_WIDTH),
            one_line(as_text(failure.output), _CELL_WIDTH),
        ]
        for failure in islice(failed_runs(results), _SHOWN_IN_CELL)
    ]
    if rows:
        profile = ["profile"] if len(summary.profiles) > 1 else []
        parts.append(table(["case", *profile, "status", "reason", "output"], rows))
    more = summary.failed + summary.error - len(rows)
    if more > 0:
        parts.append(paragraph(f"… and {more:,} more in .failures", "soft"))
    parts.append(paragraph(f"batch {summary.batch}", "soft"))
    return cell(*parts)


def _rate(results: Results) -> str:
    summary = results.summary
    if summary.pass_rate is None:
        return "no case counted"
    low, high = summary.pass_rate_low, summary.pass_rate_high
    between = "" if low is None or high is None else f" (95 % CI {low:.1%}–{high:.1%})"
    return f"pass rate {percent(summary.pass_rate)}{between}"


def _counts(results: Results) -> str:
    from evalloom.analysis.tally import STATUSES

    counts = [(status, getattr(results.summary, status)) for status in STATUSES]
    text = ", ".join(f"{count:,} {status}" for status, count in counts if count) or "no run"
    if results.quarantine is not None:
        failing = len(results.quarantine.failing)
        text += f"; {pluralize(failing, 'failing case')} {'is' if failing == 1 else 'are'} in quarantine"
    return text
