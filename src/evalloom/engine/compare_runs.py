"""The runs of a batch as a baseline keeps them, and one result for all repeats of a case, as they are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from evalloom.analysis.compare import CaseResult
from evalloom.analysis.compare_documents import DocumentChanges, Suspects
from evalloom.analysis.compare_measures import Measures
from evalloom.batchlog import Kept
from evalloom.batchlog.baselines import MOST
from evalloom.core.digest import digest_value
from evalloom.core.model import Run, Scored, Status
from evalloom.engine.batch_kind import BatchKind
from evalloom.engine.results import stored_runs

_DIGEST_BYTES = 8
_COUNTED: tuple[Status, ...] = ("passed", "failed", "error")


class FailureReasons:
    """Says why a run did not pass. That stays out of the file of a baseline: it may quote what people wrote."""

    def __init__(self, kind: BatchKind, changes: DocumentChanges | None = None) -> None:
        self._kind = kind
        self._suspects = Suspects(changes or DocumentChanges())

    def __call__(self, run: Run, scored: Scored) -> tuple[str, tuple[str, ...]]:
        """The reason, and what may have caused it."""
        if scored.status == "passed":
            return "", ()
        reason = self._kind.failure_reason(run, scored) or _reason(run, scored)
        return reason, self._suspects.notes(self._kind.expected_documents(run))


def runs_of(path: Path, reasons: FailureReasons | None = None) -> Iterator[Kept]:
    """The result of every run of a batch, by profile, case and repeat."""
    seen: Counter[str] = Counter()
    profile, case = "", (-1, "")
    for run, scored in stored_runs(path):
        if run.profile != profile:
            seen.clear()
            profile, case = run.profile, (-1, "")
        # The same id at another place of the dataset is another case.
        if (run.number, run.case_id) != case:
            case = (run.number, run.case_id)
            seen[run.case_id] += 1
        yield _kept(run, scored, seen[run.case_id], reasons)


def _kept(run: Run, scored: Scored, occurrence: int, reasons: FailureReasons | None) -> Kept:
    is_answered = not run.error and scored.status not in ("skipped", "blocked") and not run.usage.cached
    reason, notes = reasons(run, scored) if reasons else ("", ())
    return Kept(
        run.case_id,
        scored.status,
        run.profile,
        occurrence,
        run.repeat,
        _bounded(scored.score, -MOST),
        run.tags,
        tuple((one.name, one.status, _bounded(one.score, -MOST)) for one in scored.verdicts),
        _bounded(round(run.latency_s, 6), 0) if is_answered else None,
        min(max(run.usage.tokens, 0), MOST),
        _bounded(run.usage.cost, 0) or None,
        digest_value([run.case_id, run.raw], _DIGEST_BYTES),
        reason,
        notes,
    )


def _bounded(value: float | None, low: float) -> float | None:
    """A number within what a baseline may hold, so that its sums are numbers too."""
    return None if value is None else min(max(value, low), MOST)


def _reason(run: Run, scored: Scored) -> str:
    """Why a run did not pass: its error, or the first check that did not hold, of those that count if there is one."""
    faults = [one for one in scored.verdicts if one.status not in ("passed", "skipped")]
    told = [f"{one.name}: {one.reason}" for one in sorted(faults, key=lambda one: not one.weight)]
    return run.error or run.blocked or run.skipped or next(iter(told), "")


def results_of(runs: Iterator[Kept], has_measures: bool) -> Iterator[tuple[str, CaseResult]]:
    """One result for all repeats of a case, with the profile."""
    for (profile, _, _), repeats in groupby(runs, lambda run: (run.profile, run.case_id, run.occurrence)):
        yield profile, _result(list(repeats), has_measures)


def _result(runs: list[Kept], has_measures: bool) -> CaseResult:
    first = runs[0]
    counted = [run.status for run in runs if run.status in _COUNTED]
    passed = counted.count("passed")
    scores = [run.score for run in runs if run.score is not None]
    latencies = [run.latency_s for run in runs if run.latency_s is not None]
    telling = next((run for run in runs if run.status != "passed"), first)
    return CaseResult(
        first.case_id,
        first.occurrence,
        _status([run.status for run in runs], counted, passed),
        passed / len(counted) if counted else None,
        _mean(scores) if scores else None,
        first.tags,
        first.digest,
        _mean(latencies) if latencies else None,
        _mean([run.tokens for run in runs]),
        sum(run.cost or 0.0 for run in runs),
        telling.reason,
        telling.notes,
        _measures(runs) if has_measures else (),
    )


def _measures(runs: list[Kept]) -> Measures:
    """The score of each check, its mean over the repeats. A run that met an error has no checks, and counts in none."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, _, score in run.checks:
            if score is not None and 0 <= score <= 1:
                found.setdefault(name, []).append(score)
    return tuple((name, _mean(scores)) for name, scores in found.items())


def _mean(values: Sequence[float]) -> float:
    # Not `fsum`, which raises where a file that somebody edited holds numbers beyond all measure.
    return sum(values) / len(values)


def _status(statuses: list[Status], counted: list[Status], passed: int) -> Status:
    """What the repeats of a case come to: passed when all did, an error when none did and one met one."""
    if not counted:
        return "blocked" if "blocked" in statuses else statuses[0]
    if passed == len(counted):
        return "passed"
    return "error" if not passed and "error" in counted else "failed"
