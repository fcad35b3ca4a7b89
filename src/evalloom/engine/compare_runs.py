"""The runs of a batch in the form of a baseline, and the result of each case over its repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from msgspec import structs

from evalloom.analysis.compare_documents import ChangedSources, DocumentChanges
from evalloom.batchlog import BaselineRun, baseline_runs
from evalloom.batchlog.results import CaseResult, baseline_run, case_of, case_result, plain_reason
from evalloom.core.model import Record, Run, Scored
from evalloom.core.repeats import with_occurrence
from evalloom.engine.batch_kind import BatchKind
from evalloom.engine.results import stored_runs


class FailureReasons:
    """Explains why runs did not pass. Baselines do not store that, because it may quote private text."""

    def __init__(self, kind: BatchKind, changes: DocumentChanges | None = None) -> None:
        self._kind = kind
        self._changed_sources = ChangedSources(changes or DocumentChanges())

    def __call__(self, run: Run, scored: Scored) -> tuple[str, tuple[str, ...]]:
        """Return the reason, and what may have caused it."""
        if scored.status == "passed":
            return "", ()
        reason = self._kind.failure_reason(run, scored) or plain_reason(run, scored)
        return reason, self._changed_sources.notes(self._kind.expected_documents(run))


def runs_of(
    path: Path,
    reasons: FailureReasons | None = None,
    by_number: bool = False,
    warn: Callable[[str], None] = lambda message: None,
) -> Iterator[BaselineRun]:
    """Yield every run of a batch, by profile, case and repeat; `by_number` gives cases their ids of format 1."""
    for _, occurrence, run, scored in with_occurrence(stored_runs(path, warn), by_number):
        if by_number and run.position:
            run = _with_old_id(run)
        reason, notes = reasons(run, scored) if reasons else ("", ())
        yield baseline_run(run, scored, occurrence, reason, notes)


def _with_old_id(run: Run) -> Run:
    id = str(run.position)
    # The record of a case from Python is the case itself, with its id.
    raw = run.raw if run.dialect else {**run.raw, "id": id}
    return structs.replace(run, case_id=id, raw=raw, position=0, is_unnamed=False)


def runs_of_baseline(file: Path, by_number: bool = False) -> Iterator[BaselineRun]:
    """Yield every run of a baseline, as `runs_of` does those of a batch."""
    return _with_old_ids(baseline_runs(file)) if by_number else baseline_runs(file)


def _with_old_ids(runs: Iterator[BaselineRun]) -> Iterator[BaselineRun]:
    occurrences: Counter[tuple[str, str]] = Counter()
    for (profile, id, _), repeats in groupby(runs, case_of):
        first, *others = repeats
        changes: Record = {}
        if first.position:
            # The digest has the id of now in it, so it cannot tell whether the case was edited.
            id, changes = str(first.position), {"position": 0, "is_unnamed": False, "digest": ""}
        occurrences[profile, id] += 1
        for run in (first, *others):
            yield structs.replace(run, case_id=id, occurrence=occurrences[profile, id], **changes)


def results_of(
    runs: Iterator[BaselineRun], has_measures: bool, pass_if: float | None = None
) -> Iterator[tuple[str, CaseResult]]:
    """Yield the profile and the result of each case, over all its repeats; with `pass_if`, by that pass rule."""
    for (profile, _, _), repeats in groupby(runs, case_of):
        yield profile, case_result(list(repeats), has_measures, pass_if)
