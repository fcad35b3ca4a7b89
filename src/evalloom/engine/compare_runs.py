"""The runs of a batch in the form of a baseline, and the result of each case over its repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec import structs

from evalloom.analysis.compare import CaseResult
from evalloom.analysis.compare_documents import ChangedSources, DocumentChanges
from evalloom.analysis.compare_measures import Measures
from evalloom.batchlog import BaselineRun, baseline_runs
from evalloom.batchlog.baseline import MOST
from evalloom.core.digest import digest_value
from evalloom.core.model import Record, Run, Scored, Status
from evalloom.core.repeats import COUNTED, meets, with_occurrence
from evalloom.engine.batch_kind import BatchKind
from evalloom.engine.results import stored_runs

_DIGEST_BYTES = 8


class FailureReasons:
    """Explains why runs did not pass. Baselines do not store that, because it may quote private text."""

    def __init__(self, kind: BatchKind, changes: DocumentChanges | None = None) -> None:
        self._kind = kind
        self._changed_sources = ChangedSources(changes or DocumentChanges())

    def __call__(self, run: Run, scored: Scored) -> tuple[str, tuple[str, ...]]:
        """Return the reason, and what may have caused it."""
        if scored.status == "passed":
            return "", ()
        # Of the checks that did not hold, one that counts comes before one of weight 0.
        failed = [verdict for verdict in scored.verdicts if verdict.status not in ("passed", "skipped")]
        failed.sort(key=lambda verdict: not verdict.weight)
        reason = self._kind.failure_reason(run, scored) or run.error or run.blocked or run.skipped
        if not reason and failed:
            reason = f"{failed[0].name}: {failed[0].reason}"
        return reason, self._changed_sources.notes(self._kind.expected_documents(run))


def runs_of(
    path: Path,
    reasons: FailureReasons | None = None,
    by_number: bool = False,
    warn: Callable[[str], None] = lambda message: None,
) -> Iterator[BaselineRun]:
    """Yield every run of a batch, by profile, case and repeat; `by_number` gives cases their ids of format 1."""
    for _, occurrence, run, scored in with_occurrence(stored_runs(path, warn), by_number):
        yield _baseline_run(_with_old_id(run) if by_number and run.position else run, scored, occurrence, reasons)


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
    for (profile, id, _), repeats in groupby(runs, _case_of):
        first, *others = repeats
        changes: Record = {}
        if first.position:
            # The digest has the id of now in it, so it cannot tell whether the case was edited.
            id, changes = str(first.position), {"position": 0, "is_unnamed": False, "digest": ""}
        occurrences[profile, id] += 1
        for run in (first, *others):
            yield structs.replace(run, case_id=id, occurrence=occurrences[profile, id], **changes)


def _case_of(run: BaselineRun) -> tuple[str, str, int]:
    return run.profile, run.case_id, run.occurrence


def _baseline_run(run: Run, scored: Scored, occurrence: int, reasons: FailureReasons | None) -> BaselineRun:
    is_answered = not run.error and scored.status not in ("skipped", "blocked") and not run.usage.cached
    reason, notes = reasons(run, scored) if reasons else ("", ())
    return BaselineRun(
        run.case_id,
        scored.status,
        run.profile,
        occurrence,
        run.repeat,
        _bounded(scored.score, -MOST),
        run.tags,
        tuple((verdict.name, verdict.status, _bounded(verdict.score, -MOST)) for verdict in scored.verdicts),
        _bounded(round(run.latency_s, 6), 0) if is_answered else None,
        min(max(run.usage.tokens, 0), MOST),
        _bounded(run.usage.cost, 0) or None,
        digest_value([run.case_id, run.raw], _DIGEST_BYTES),
        run.position,
        run.is_unnamed,
        reason,
        notes,
    )


def _bounded(value: float | None, low: float) -> float | None:
    """Clamp a number to the range of a baseline, so that sums stay finite."""
    return None if value is None else min(max(value, low), MOST)


def results_of(
    runs: Iterator[BaselineRun], has_measures: bool, pass_if: float | None = None
) -> Iterator[tuple[str, CaseResult]]:
    """Yield the profile and the result of each case, over all its repeats; with `pass_if`, by that pass rule."""
    for (profile, _, _), repeats in groupby(runs, _case_of):
        yield profile, _result(list(repeats), has_measures, pass_if)


def _result(runs: list[BaselineRun], has_measures: bool, pass_if: float | None) -> CaseResult:
    first = runs[0]
    counted = [run.status for run in runs if run.status in COUNTED]
    passed = counted.count("passed")
    has_passed = passed == len(counted) if pass_if is None else meets((passed, len(counted)), pass_if)
    share = passed / len(counted) if counted and pass_if is None else float(has_passed)
    scores = [run.score for run in runs if run.score is not None]
    latencies = [run.latency_s for run in runs if run.latency_s is not None]
    unpassed = next((run for run in runs if run.status != "passed"), first)
    return CaseResult(
        first.case_id,
        first.occurrence,
        _status([run.status for run in runs], counted, has_passed),
        share if counted else None,
        _mean(scores) if scores else None,
        first.tags,
        first.digest,
        _mean(latencies) if latencies else None,
        _mean([run.tokens for run in runs]),
        sum(run.cost or 0.0 for run in runs),
        unpassed.reason,
        unpassed.notes,
        _measures(runs) if has_measures else (),
        passed,
        len(counted),
        first.position,
        first.is_unnamed,
    )


def _measures(runs: list[BaselineRun]) -> Measures:
    """Return the mean score of each check over the repeats. A run with an error has no checks."""
    by_check: dict[str, list[float]] = {}
    for run in runs:
        for name, _, score in run.checks:
            if score is not None and 0 <= score <= 1:
                by_check.setdefault(name, []).append(score)
    return tuple((name, _mean(scores)) for name, scores in by_check.items())


def _mean(values: Sequence[float]) -> float:
    # Not `fsum`, which raises for the huge numbers that an edited file may hold.
    return sum(values) / len(values)


def _status(statuses: list[Status], counted: list[Status], has_passed: bool) -> Status:
    """Return the status of a case that did or did not pass: error if no repeat passed and one met an error."""
    if not counted:
        return "blocked" if "blocked" in statuses else statuses[0]
    if has_passed:
        return "passed"
    return "error" if "passed" not in counted and "error" in counted else "failed"
