"""A stored batch for reporters: its runs, figures and gates, and what changed against another batch or a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalloom.analysis.tally import Tally
from evalloom.batchlog import is_in_use, manifest
from evalloom.batchlog.read import RUNS_MISSING
from evalloom.core.model import Batch, Case, Run
from evalloom.engine.cases import with_checks
from evalloom.engine.compare import ComparisonRequest, ComparisonResult, base_batch
from evalloom.engine.plan import CHECK_LISTS
from evalloom.engine.results import UNTIL_SURE, Results, accepted_by, stored_runs, warn_if_stopped_when_sure
from evalloom.engine.resume import DamagedRun, case_of
from evalloom.engine.system import Catalog
from evalloom.reports.run_report import BatchState, ComparedWith, ReportRow, RunReport
from evalloom.settings import load as load_settings

if TYPE_CHECKING:
    from evalloom.engine.until_sure import Answer


class StoredRuns:
    """The runs of a batch, read again each time; `damage` lists the lines that cannot be read, `missing` the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self.missing: list[str] = []

    def __iter__(self) -> Iterator[ReportRow]:
        return stored_runs(self.path, self._add_damage)

    def _add_damage(self, message: str) -> None:
        messages = self.missing if message.endswith(RUNS_MISSING) else self.damage
        if message not in messages:
            messages.append(message)


def stored_results(
    path: Path, catalog: Catalog, config: str = "", warn: Callable[[str], None] = lambda message: None
) -> Results:
    """Count the runs of a batch, and check the gates of the settings; nothing is run or scored."""
    settings = load_settings(Path(config) if config else None, catalog.sections)
    batch = manifest(path)
    tally = Tally(batch.options.get("pass_if"))
    tally.order = [profile.name for profile in batch.profiles]
    for run, scored in stored_runs(path, warn):
        tally.add(run, scored)
    summary, answer = tally.summary(batch.id, path.as_posix(), _duration(batch)), _answer(batch)
    if answer is not None:
        summary = answer.with_intervals(summary)
    else:
        warn_if_stopped_when_sure(batch, batch.id, warn)
    accepted = accepted_by(settings.run, batch.options)
    return Results(path, summary, tally, settings.gates, accepted=accepted, answer=answer, catalog=catalog)


def _answer(batch: Batch) -> Answer | None:
    """Return what --until-sure decided when the batch was run."""
    stored = batch.summary.get(UNTIL_SURE)
    if not stored:
        return None
    from evalloom.engine.until_sure import Answer  # deferred: few batches have one

    try:
        return msgspec.convert(stored, Answer)
    except msgspec.ValidationError:  # of another version, or edited
        return None


def _duration(batch: Batch) -> float | None:
    """Return how long the batch took when it was run."""
    duration = batch.summary.get("duration_s")
    return float(duration) if isinstance(duration, int | float) else None


def report_of(
    results: Results, catalog: Catalog, language: str = "en", compared: ComparedWith | None = None
) -> RunReport:
    """Return what reporters write about a batch."""
    batch, rows = manifest(results.path), StoredRuns(results.path)
    return RunReport(
        batch=msgspec.to_builtins(batch),
        summary=msgspec.to_builtins(results.summary),
        gates=[msgspec.to_builtins(gate) for gate in results.gates],
        rows=rows,
        problem=results.problem.code if results.problem else "",
        language=language,
        answer=msgspec.to_builtins(results.answer) if results.answer else {},
        state="stopped" if results.stopped else _state(results.path, batch),
        stopped=results.stopped,
        compared=compared,
        case_of=partial(_case_of, catalog=catalog, batch=batch),
        is_quarantined=results.is_quarantined,
        damage=rows.damage,
        missing=rows.missing,
    )


def compared_with(result: ComparisonResult, request: ComparisonRequest) -> ComparedWith:
    """Return the result of a comparison for reporters, with the runs of the other side if it is a batch."""
    path = base_batch(request)
    sides = [manifest(base_batch(msgspec.structs.replace(request, baseline="")) or Path())]
    sides += [manifest(path)] if path else []
    return ComparedWith(
        result.baseline,
        result.comparisons,
        [difference.text for difference in result.differences],
        result.is_regression,
        result.is_comparable,
        StoredRuns(path) if path else (),
        any(batch.has_numbered_cases for batch in sides),
        msgspec.to_builtins(result),
    )


def _state(path: Path, batch: Batch) -> BatchState:
    if batch.finished_at:
        return "finished"
    return "running" if is_in_use(path) else "stopped"


def _case_of(run: Run, catalog: Catalog, batch: Batch) -> Case | None:
    try:
        case = case_of(run, catalog.formats, batch.options.get(CHECK_LISTS, "plain"))
        return with_checks(case, (), batch.config, catalog)
    except DamagedRun:
        return None
