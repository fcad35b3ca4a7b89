"""Writes a batch as a HOP result file: one meta line per profile, then each case with its result (HOP-6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from evalloom.core.model import Batch, Record, Run
from evalloom.hop.dialect import RESULT_FIELDS, is_meta, normalize_input
from evalloom.reports.run_report import RunReport, encode

name = "hop"
suffix = ".hop.jsonl"
_LONGEST_META = 64 * 1024


def render(report: RunReport, stream: IO[bytes]) -> None:
    for row in rows(report):
        stream.write(encode(row) + b"\n")


def why_not_replace(path: Path, batch: Batch | None) -> str:
    """Return why the file must not be replaced by the results of `batch`, or nothing if it has its earlier ones."""
    try:
        with path.open("rb") as stream:
            first = stream.readline(_LONGEST_META)
        meta = msgspec.json.decode(first, type=dict) if first else None
    except (OSError, msgspec.DecodeError):
        meta = {}
    if meta is None:
        return ""
    if not is_meta(meta):
        return "exists, and has no HOP results of evalloom"
    time = meta.get("timestamp")
    return "" if batch is not None and time == batch.created_at else f"has the HOP results of another batch, of {time}"


def rows(report: RunReport, is_view: bool = False) -> Iterator[Record]:
    """Yield the meta lines and the result rows of a batch, in the flat or in the View wrapper."""
    for profile in report.batch.get("profiles", ()):
        yield meta_row(profile, report.batch)
    for run, _ in report.rows:
        # An unreadable line has no record to write; the batch log has its finding.
        if run.raw:
            yield view_row(run) if is_view else result_row(run)


def meta_row(profile: Record, batch: Record) -> Record:
    """Return the meta line of a profile; an llm without a model is listed under its own name."""
    models = batch["models"]
    return {
        "_type": "meta",
        "profile": profile["name"],
        "run_llm": models.get(profile["run"]) or profile["run"],
        "verify_llm": models.get(profile["verify"]) or profile["verify"],
        "run_params": batch["params"].get(profile["name"], {}),
        "timestamp": batch["created_at"],
    }


def result_row(run: Run) -> Record:
    """Return the record of the case with its result; results of earlier runs are replaced."""
    record = {name: value for name, value in normalize_input(run.raw).items() if name not in RESULT_FIELDS}
    return {
        **record,
        "hop_result": "null" if _failure(run) else encode(run.output.value).decode(),
        "hop_stats": _stats(run),
        "profile": run.profile,
    }


def view_row(run: Run) -> Record:
    """Return the same in the wrapper of the web page: `input` with `result` or `error` (HOP-7).

    The profile and the statistics stand beside them, so that both wrappers give the same figures.
    """
    flat = result_row(run)
    beside = {name: flat.pop(name) for name in ("profile", "hop_stats")}
    result = flat.pop("hop_result")
    failure = _failure(run)
    return {"input": flat, **({"error": failure} if failure else {"result": result}), **beside}


def _failure(run: Run) -> str:
    """Return why a run has no result. A skipped or blocked case is an error: the format has no other word for it."""
    skipped = f"skipped: {run.skipped}" if run.skipped else ""
    return run.error or skipped or (f"blocked: {run.blocked}" if run.blocked else "")


def _stats(run: Run) -> Record:
    steps = [entry for entry in run.trace if entry.get("type") == "step"]
    path = [{name: step[name] for name in _STEP if name in step} for step in steps]
    failure = _failure(run)
    failed = {"error": failure} if failure else {}
    # The format has no repeats; the number keeps the rows of one case distinct.
    repeated = {"repeat": run.repeat} if run.repeat else {}
    return {
        "retry_count": sum(step.get("retry_count") or 0 for step in path),
        "execution_path": path,
        "status": "ERROR" if failure else "OK",
        **failed,
        "hop_status": "FAIL" if failure else run.outcome,
        **repeated,
    }


_STEP = ("step", "op", "task", "status", "retry_count", "duration")
