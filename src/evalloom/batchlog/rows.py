"""The rows of the views: what a batch says about its cases, runs, verdicts, steps and llm calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from evalloom.batchlog.columns import BatchRow, CallRow, CaseRow, Json, Row, RunRow, StepRow, Time, VerdictRow
from evalloom.core.model import Batch, Case, Record, Run, Scored, Verdict, check_name
from evalloom.core.repeats import COUNTED
from evalloom.data.checks import CheckLists
from evalloom.data.formats import Formats


def batch_row(batch: Batch, path: str, status: str, system: str) -> BatchRow:
    """Return the row of a batch."""
    datasets = batch.datasets
    pass_if = batch.options.get("pass_if")
    return BatchRow(
        batch.id,
        path,
        time_of(batch.created_at),
        time_of(batch.finished_at),
        status,
        system or None,
        _joined(dataset.dialect for dataset in datasets),
        batch.target or None,
        batch.target_digest or None,
        _joined(dataset.path for dataset in datasets),
        _joined(dataset.digest for dataset in datasets),
        [profile.name for profile in batch.profiles],
        json_of(batch.models),
        batch.judge or None,
        _float(pass_if),
        batch.evalloom or None,
        batch.python or None,
        json_of(batch.options),
        json_of(batch.config),
        json_of(batch.params),
        batch.identity or None,
    )


def _joined(texts: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(texts)) or None


_Labels = tuple[str | None, str | None, str | None]
"""The category, the bucket and the difficulty of a case."""


class RowReader:
    """Turns the runs of one batch into rows."""

    def __init__(self, batch: Batch, formats: Formats, buckets: Iterable[str]) -> None:
        self._batch = batch
        self._formats = formats
        self._buckets = frozenset(buckets)
        self._lists: CheckLists = batch.options.get("check_lists", "plain")
        self._models = {profile.name: batch.models.get(profile.run) or profile.run for profile in batch.profiles}
        self._labels: dict[tuple[int, str], _Labels] = {}
        """Those of each case. Most cases share theirs, so they are kept once."""
        self._unique_labels: dict[_Labels, _Labels] = {}

    def rows(self, run: Run, scored: Scored) -> Iterator[tuple[str, Row]]:
        """Yield the rows of a run, each with the name of its view; the row of its case with the first run only."""
        labels = self._labels.get((run.number, run.case_id))
        if labels is None:
            case = self._case_row(run)
            labels = (case.category, case.bucket, case.difficulty)
            labels = self._labels[run.number, run.case_id] = self._unique_labels.setdefault(labels, labels)
            yield "cases", case
        yield "runs", self._run_row(run, scored, labels)
        place = (self._batch.id, run.key, run.case_id, run.profile, run.repeat)
        for number, verdict in enumerate(scored.verdicts, 1):
            yield "verdicts", _verdict_row(place, number, verdict)
        steps = calls = 0
        for entry in run.trace:
            if entry.get("type") == "step":
                steps += 1
                yield "steps", _step_row(place, steps, entry, run.output.steps)
            for call in _calls_in(entry):
                calls += 1
                yield "llm_calls", _call_row(place, calls, call)

    def _case_row(self, run: Run) -> CaseRow:
        try:
            if run.dialect:
                dialect = self._formats.by_name(run.dialect)
                case = self._formats.case(dialect, run.raw, run.origin, self._lists)
                category = dialect.category(run.raw)
            else:
                case, category = msgspec.convert(run.raw, Case), ""
        except Exception:  # a dialect reads checked records only, and this one may have any damage
            case, category = Case(run.case_id, {}), ""
        meta = case.meta
        expected: Record = {}
        for check in case.checks:
            name, number = check_name(check), 1
            while name in expected:
                number += 1
                name = f"{check_name(check)} #{number}"
            expected[name] = check.expected
        return CaseRow(
            self._batch.id,
            run.case_id,
            run.number,
            text_of(meta.get("description")),
            list(run.tags),
            category or _label(meta, "category"),
            next((tag for tag in run.tags if tag in self._buckets), None) or _label(meta, "bucket"),
            _label(meta, "difficulty"),
            run.dialect or None,
            run.origin.file or None,
            run.origin.line or None,
            json_of(case.inputs),
            json_of(expected) if expected else None,
            json_of(run.raw) if run.raw else None,
        )

    def _run_row(self, run: Run, scored: Scored, labels: _Labels) -> RunRow:
        usage, judged = run.usage, scored.usage
        status = scored.status
        deciding = _deciding_verdict(scored)
        has_answer = not run.error and status not in ("skipped", "blocked")
        return RunRow(
            self._batch.id,
            run.key,
            run.case_id,
            run.number,
            run.profile,
            run.repeat,
            status,
            status == "passed" if status in COUNTED else None,
            scored.score,
            run.outcome,
            (deciding.name or deciding.kind) if deciding else None,
            (deciding.reason or None) if deciding else run.error or None,
            scored.step or None,
            run.error or None,
            error_code(run.error),
            time_of(run.started_at),
            run.duration_s,
            run.latency_s if has_answer and not usage.cached else None,
            usage.input_tokens + judged.input_tokens,
            usage.output_tokens + judged.output_tokens,
            usage.tokens + judged.tokens,
            usage.cost + judged.cost,
            usage.calls + judged.calls,
            usage.cached + judged.cached,
            usage.retries + judged.retries,
            self._models.get(run.profile) or None,
            list(run.tags),
            *labels,
            run.dialect or None,
            run.origin.file or None,
            run.origin.line or None,
            json_of(run.output.value) if has_answer else None,
        )


def _deciding_verdict(scored: Scored) -> Verdict | None:
    """Return the first verdict that has the status of its run; a failure that follows from another comes last."""
    if scored.status == "passed":
        return None
    own = [verdict for verdict in scored.verdicts if verdict.status == scored.status]
    return min(own, key=lambda verdict: (verdict.weight == 0, bool(verdict.follows)), default=None)


def _verdict_row(place: tuple[str, str, str, str, int], number: int, verdict: Verdict) -> VerdictRow:
    return VerdictRow(
        *place,
        number,
        verdict.name or verdict.kind,
        verdict.kind,
        verdict.where or None,
        verdict.status,
        verdict.score,
        verdict.reason or None,
        verdict.weight,
        verdict.follows or None,
        json_of(verdict.mismatches) if verdict.mismatches else None,
    )


def _step_row(place: tuple[str, str, str, str, int], number: int, entry: Record, outputs: Record) -> StepRow:
    """Return the row of a step: of a pipeline by its id and kind, of a hoplet by its task and operator."""
    usages = [usage for call in _calls_in(entry) if (usage := _usage_of(call))]
    is_operator = "op" in entry
    step = text_of(entry.get("step"))
    return StepRow(
        *place,
        number,
        (text_of(entry.get("task")) or step) if is_operator else step,
        text_of(entry.get("op" if is_operator else "kind")),
        text_of(entry.get("status")),
        _float(entry.get("started_s")),
        _float(entry.get("duration" if is_operator else "duration_s")),
        _int(entry.get("tokens")),
        sum(_float(usage.get("cost")) or 0.0 for usage in usages) if usages else None,
        _int(entry.get("retry_count")) if is_operator else sum(_int(usage.get("retries")) or 0 for usage in usages),
        text_of(entry.get("error")),
        json_of(entry["output"] if "output" in entry else outputs.get(step or "")),
    )


def _calls_in(entry: Record) -> Iterator[Record]:
    """Yield the llm calls of an entry of a trace, also those inside a step."""
    if entry.get("type") == "llm":
        yield entry
    calls = entry.get("calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _calls_in(call)


def _usage_of(call: Record) -> Record:
    response = call.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    return usage if isinstance(usage, dict) else {}


def _call_row(place: tuple[str, str, str, str, int], number: int, call: Record) -> CallRow:
    response = call.get("response")
    response = response if isinstance(response, dict) else {}
    request = call.get("request")
    usage = _usage_of(call)
    return CallRow(
        *place,
        number,
        text_of(call.get("llm")),
        text_of(response.get("model")),
        _float(call.get("duration_s")),
        _float(usage.get("waited_s")) or 0.0,
        _int(usage.get("input_tokens")) or 0,
        _int(usage.get("output_tokens")) or 0,
        _float(usage.get("cost")) or 0.0,
        _int(usage.get("cached")) or 0,
        _int(usage.get("retries")) or 0,
        text_of(response.get("stop")),
        text_of(call.get("error")),
        json_of(request.get("messages")) if isinstance(request, dict) else None,
        text_of(response.get("text")),
    )


def error_code(error: str) -> str | None:
    """Return the code at the end of a message."""
    return error.rpartition("[")[2][:-1] if error.endswith("]") and "[" in error else None


def time_of(text: str) -> Time | None:
    """Return a time in UTC; None for a text that is none."""
    if text.endswith("+00:00"):
        return Time(text[:-6])
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return Time((time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat())


def json_of(value: Any) -> Json:
    """Return a value as JSON; None for null."""
    if value is None:
        return None
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        # Lone surrogates, which the log of a batch does not have either.
        return Raw(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _label(meta: Record, name: str) -> str | None:
    """Return a label of a case: a field beside its inputs, or one of its metadata."""
    nested = meta.get("metadata")
    value = meta.get(name)
    return text_of(nested.get(name) if value is None and isinstance(nested, dict) else value)


def text_of(value: Any) -> str | None:
    """Return a value as text, or as JSON if it is none; None for null and an empty text."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else bytes(json_of(value) or b"").decode()


def _float(value: Any) -> float | None:
    if type(value) is float:
        return value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: Any) -> int | None:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    number = _float(value)
    return int(number) if number is not None and abs(number) < 2**63 else None
