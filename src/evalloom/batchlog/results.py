"""The result of each case over its repeats: from the runs of a batch or baseline, and as rows of the Parquet copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from msgspec import Struct

from evalloom.batchlog.baseline import MOST, BaselineRun
from evalloom.core.digest import digest_value
from evalloom.core.model import Run, Scored, Status
from evalloom.core.repeats import COUNTED, meets, with_occurrence

Measures = tuple[tuple[str, float], ...]
"""The measures of one case by name, each from 0 to 1."""
_DIGEST_BYTES = 8


class CaseResult(Struct, frozen=True, gc=False):
    """The result of one case under one profile, over all its repeats.

    `share` is that of the repeats that passed among those that passed, failed or met an error; absent without any.
    With a pass rule it is 1 or 0. `repeats` counts those that passed, failed or met an error.
    """

    case_id: str
    occurrence: int
    status: Status
    share: float | None
    score: float | None = None
    tags: tuple[str, ...] = ()
    digest: str = ""
    latency_s: float | None = None
    tokens: float = 0.0
    cost: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()
    measures: Measures = ()
    passed: int = 0
    repeats: int = 0
    position: int = 0
    is_unnamed: bool = False
    """Whether the case has no id of its own; `position` then is its number in its file."""


class ResultRow(Struct, frozen=True):
    """A `CaseResult` in the Parquet copy, without a pass rule; no view, but what `compare` reads.

    Most cases of two batches are alike, and three digests tell which: comparing them reads no text.
    """

    profile: str
    case_id: str
    occurrence: int
    status: str
    has_error: bool
    """Whether a repeat met an error."""
    passed: int
    repeats: int
    score: float | None
    tags: list[str]
    latency_s: float | None
    tokens: float
    cost: float
    reason: str
    position: int
    is_unnamed: bool
    content: int
    """The digest of the case as a number."""
    pair: int
    """A digest of the id and the occurrence: the same case on the other side has the same."""
    group: int
    """A digest of the tags, the status and the counts of repeats; 0 if no repeat counts."""


def plain_reason(run: Run, scored: Scored) -> str:
    """Return why a run did not pass; empty if it did."""
    if scored.status == "passed":
        return ""
    if reason := run.error or run.blocked or run.skipped:
        return reason
    # Of the checks that did not hold, one that counts comes before one of weight 0.
    failed = [verdict for verdict in scored.verdicts if verdict.status not in ("passed", "skipped")]
    first = min(failed, key=lambda verdict: not verdict.weight, default=None)
    return f"{first.name}: {first.reason}" if first else ""


def baseline_run(
    run: Run, scored: Scored, occurrence: int, reason: str = "", notes: tuple[str, ...] = ()
) -> BaselineRun:
    """Return a run in the form of a baseline."""
    is_answered = not run.error and scored.status not in ("skipped", "blocked") and not run.usage.cached
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


def case_result(runs: list[BaselineRun], has_measures: bool = False, pass_if: float | None = None) -> CaseResult:
    """Return the result of a case from its repeats; with `pass_if`, by that pass rule."""
    first = runs[0]
    statuses = [run.status for run in runs]
    counted = sum(status in COUNTED for status in statuses)
    scores = [run.score for run in runs if run.score is not None]
    latencies = [run.latency_s for run in runs if run.latency_s is not None]
    unpassed = next((run for run in runs if run.status != "passed"), first)
    passed = statuses.count("passed")
    status, share = _conclusion(passed, counted, "error" in statuses, pass_if)
    return CaseResult(
        first.case_id,
        first.occurrence,
        status or ("blocked" if "blocked" in statuses else statuses[0]),
        share,
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
        counted,
        first.position,
        first.is_unnamed,
    )


def _conclusion(
    passed: int, counted: int, has_error: bool, pass_if: float | None
) -> tuple[Status, float] | tuple[None, None]:
    """Return the status of a case and its share; error if no repeat passed and one met an error."""
    if not counted:
        return None, None
    has_passed = passed == counted if pass_if is None else meets((passed, counted), pass_if)
    share = passed / counted if pass_if is None else float(has_passed)
    return "passed" if has_passed else "error" if has_error and not passed else "failed", share


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


# -- rows of the copy --------------------------------------------------------------------------------------


def result_rows(runs: Iterable[tuple[Run, Scored]]) -> Iterator[ResultRow]:
    """Yield a row for each case from runs that come by profile, case and repeat."""
    stored = (
        baseline_run(run, scored, occurrence, plain_reason(run, scored))
        for _, occurrence, run, scored in with_occurrence(runs)
    )
    for _, repeats in groupby(stored, case_of):
        yield _row(list(repeats))


def case_of(run: BaselineRun) -> tuple[str, str, int]:
    """Return what the repeats of a case have in common."""
    return run.profile, run.case_id, run.occurrence


def _row(runs: list[BaselineRun]) -> ResultRow:
    result = case_result(runs)
    has_error = any(run.status == "error" for run in runs)
    return ResultRow(
        runs[0].profile,
        result.case_id,
        result.occurrence,
        result.status,
        has_error,
        result.passed,
        result.repeats,
        result.score,
        list(result.tags),
        result.latency_s,
        result.tokens,
        result.cost,
        result.reason,
        result.position,
        result.is_unnamed,
        _number(result.digest),
        _number(digest_value([result.case_id, result.occurrence], _DIGEST_BYTES)),
        _group(result.tags, result.status, has_error, result.passed, result.repeats) if result.repeats else 0,
    )


@lru_cache(10_000)
def _group(*values: Any) -> int:
    return _number(digest_value(values, _DIGEST_BYTES))


def _number(digest: str) -> int:
    """Return a digest of eight bytes as a number that fits an SQL column."""
    return int.from_bytes(bytes.fromhex(digest), signed=True)


RESULT_COLUMNS = tuple(name for name in ResultRow.__struct_fields__ if name not in ("profile", "pair", "group"))


def result_of(values: tuple[Any, ...], pass_if: float | None) -> CaseResult:
    """Return the result in a row of `RESULT_COLUMNS`; with `pass_if`, by that pass rule."""
    (id, occurrence, stored, has_error, passed, repeats, score, tags, latency_s, tokens, cost, reason, *others) = values
    position, is_unnamed, content = others
    status, share = _conclusion(passed, repeats, has_error, pass_if)
    return CaseResult(
        id,
        occurrence,
        status or stored,
        share,
        score,
        tuple(tags),
        content.to_bytes(_DIGEST_BYTES, signed=True).hex(),
        latency_s,
        tokens,
        cost,
        reason,
        passed=passed,
        repeats=repeats,
        position=position,
        is_unnamed=is_unnamed,
    )
