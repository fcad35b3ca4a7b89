"""HOP result files as sources of views: a file is read like a batch, and the observer's log as its own view."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from evalloom.batchlog.columns import BatchRow, EventRow, Row, RunRow
from evalloom.batchlog.copy import Source
from evalloom.batchlog.read import Damage
from evalloom.batchlog.rows import RowReader, batch_row, json_of, text_of
from evalloom.core.digest import digest_text
from evalloom.core.model import Batch, DatasetFacts, Origin, Output, Profile, Record, Run, Usage
from evalloom.data.formats import Formats
from evalloom.engine.score import grade_now
from evalloom.hop.dialect import DIALECT, is_meta, is_result, normalize_audit, same_case, to_case
from evalloom.hop.results.index import OBSERVER, read_records, stamps_of
from evalloom.hop.results.rows import OUTCOMES, json_text, row_of
from evalloom.matchers import Services

_SNIFFED = 50
"""The records of a file that are looked at to see whether it has results."""
_UNKNOWN: dict[str, None] = dict.fromkeys(
    ("duration_s", "latency_s", "input_tokens", "output_tokens", "tokens", "cost", "calls", "cached")
)
"""The columns of a run that a result file has nothing for."""


def results_in(path: Path) -> list[Source] | None:
    """Return the result files of a folder, a task or a single file, with the observer's log; None if there are none."""
    inner = path / "TestCases"
    folder = inner if inner.is_dir() else path
    if folder.is_dir():
        files = [folder / name for name in stamps_of(folder) if _has_results(folder / name)]
        log = folder / OBSERVER
    else:
        files = [path] if path.suffix == ".jsonl" and path.name != OBSERVER and _has_results(path) else []
        log = path if path.name == OBSERVER else Path()
    sources = [_result_source(file) for file in files]
    if log.is_file():
        rows = partial(_event_rows, log)
        id = f"observer of {log.parent.resolve().as_posix()}"
        sources.append(Source(BatchRow(id, ""), log.parent, (log,), _place(log), rows, is_listed=False))
    return sources or None


def _place(file: Path) -> Path:
    return file.parent.absolute() / ".evalloom" / "views" / digest_text(file.name, 8)


def _has_results(path: Path) -> bool:
    first = [record for _, record in islice(read_records(path), _SNIFFED) if isinstance(record, dict)]
    return any(is_meta(record) or is_result(record) for record in first)


def _result_source(path: Path) -> Source:
    batch = _batch_of(path)
    row = batch_row(batch, path.as_posix(), "finished", "hop")
    return Source(row, path.parent, (path,), _place(path), partial(_result_rows, path, batch))


def _batch_of(path: Path) -> Batch:
    """Return what the meta lines at the head of a file say about it (HOP-6)."""
    first = (record for _, record in islice(read_records(path), _SNIFFED) if isinstance(record, dict))
    metas = [record for record in first if is_meta(record)]
    profiles = {str(meta["profile"]): meta for meta in metas if meta.get("profile") is not None}
    models = {str(meta["run_llm"]): str(meta["run_llm"]) for meta in profiles.values() if meta.get("run_llm")}
    return Batch(
        path.stem,
        next((str(meta["timestamp"]) for meta in metas if meta.get("timestamp")), ""),
        datasets=[DatasetFacts(path.name, DIALECT.name, "")],
        profiles=[Profile(name, str(meta.get("run_llm") or "")) for name, meta in profiles.items()],
        models=models,
    )


class _Numbers(Struct):
    """Numbers the cases of a file, and the repeats of each under its profile."""

    cases: dict[str, int] = {}
    repeats: dict[tuple[str, str], int] = {}

    def next(self, record: Record, line: int, profile: str) -> tuple[int, int]:
        # Digests, because the key of a case has its inputs.
        case = digest_text(same_case(record)[0] or f"line {line}")
        number = self.cases.setdefault(case, len(self.cases) + 1)
        repeat = self.repeats[case, profile] = self.repeats.get((case, profile), -1) + 1
        return number, repeat


def _result_rows(path: Path, batch: Batch, damage: list[Damage]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a result file; its runs have no times, tokens and costs."""
    reader = RowReader(batch, Formats((DIALECT,)), ())
    services, numbers = Services(), _Numbers()
    for line, record in read_records(path):
        if isinstance(record, str):
            damage.append(Damage(path.name, line, record))
            continue
        run = _run_of(record, path.name, line, numbers)
        if run is None:
            continue
        scored = grade_now(to_case(record, run.origin), run, services)
        assert scored is not None  # equality needs no llm
        for table, row in reader.rows(run, scored):
            if isinstance(row, RunRow):
                row = structs.replace(row, **_UNKNOWN)
            yield table, row


def _run_of(record: Record, file: str, line: int, numbers: _Numbers) -> Run | None:
    """Return the run that a result row is about; None for other rows."""
    audit = normalize_audit(record)
    if audit is None:
        return None
    row = row_of(record)
    stats = audit["stats"]
    profile = row["profile"] or ""
    number, repeat = numbers.next(record, line, profile)
    path = stats.get("execution_path")
    identity = audit["case"].get("id")
    return Run(
        f"{file}:{line}",
        str(number) if identity is None else identity if isinstance(identity, str) else json_text(identity),
        profile,
        repeat,
        number,
        OUTCOMES[row["outcome"]],  # type: ignore[arg-type]
        output=Output(audit["result"]),
        error="" if row["completed"] else row["error"] or f"the status is {stats.get('status') or 'FAIL'}",
        usage=Usage(retries=int(row["retry_count"] or 0)),
        trace=[{**step, "type": "step"} for step in path if isinstance(step, dict)] if isinstance(path, list) else [],
        tags=(row["tag"],) if row["tag"] else (),
        dialect=DIALECT.name,
        origin=Origin(file, line),
        raw=record,
    )


def _event_rows(log: Path, damage: list[Damage]) -> Iterator[tuple[str, Row]]:
    for line, record in read_records(log):
        if isinstance(record, str) or record.get("type") is None:
            reason = record if isinstance(record, str) else "expected an object with a type"
            damage.append(Damage(log.name, line, reason))
            continue
        metadata = record.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        retries, cached = _number(record.get("retry_count")), _number(metadata.get("cached"))
        yield (
            "observer",
            EventRow(
                text_of(record["type"]),
                text_of(record.get("run_id")),
                text_of(record.get("op")),
                text_of(record.get("status")),
                _number(record.get("duration")),
                None if retries is None else int(retries),
                text_of(metadata.get("profile")),
                None if cached is None else int(cached),
                json_of(record),
            ),
        )


def _number(value: Any) -> float | None:
    """Return a number that may be written as a text, as `perf.py` reads it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
