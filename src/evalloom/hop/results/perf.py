"""Durations of runs and operators, from the observer's log (HOP-18)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from evalloom.batchlog.parquet import path_pattern, quoted
from evalloom.core.model import Record

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NO_RUNS: Record = {"runs": 0, "cached": 0, "mean": None, "p50": None, "p95": None, "operators": [], "unreadable": 0}
_COLUMNS = ("type", "run_id", "op", "status", "duration", "retry_count")
_METADATA = ("profile", "cached")
_LONG_LINE = 1024**2


def perf_summary(connection: DuckDBPyConnection, log: Path, profile: str | None = None) -> Record:
    """Return mean, p50 and p95 of the run durations, and one row per operator, most called first.

    Runs and steps with answers from the cache count, but their durations do not: they say nothing about the next run.
    All columns are declared as JSON: a log without steps has no `op`, and values may be numbers or texts.
    """
    import duckdb

    try:
        _load(connection, log)
    except duckdb.InvalidInputException:
        # DuckDB reads no line of more than 16 MB, and a log has the whole answer of each run.
        with TemporaryDirectory() as folder:
            short = Path(folder) / log.name
            _write_shortened(log, short)
            _load(connection, short)
    if profile is not None:
        # Only run_end has the profile; steps are matched by run_id.
        connection.execute(
            """CREATE OR REPLACE TEMP TABLE log AS SELECT * FROM log WHERE type IS NULL OR run_id IN (
                SELECT run_id FROM log WHERE type = 'run_end' AND profile = ?)""",
            [profile],
        )
    is_cached = f"coalesce({_number('cached')} > 0, false)"
    timed = f"CASE WHEN NOT {is_cached} THEN {_number('duration')} END"
    runs, cached, mean, p50, p95, unreadable = connection.execute(f"""
        SELECT count(*) FILTER (type = 'run_end'), count(*) FILTER (type = 'run_end' AND {is_cached}), avg(seconds),
            quantile_cont(seconds, 0.5), quantile_cont(seconds, 0.95), count(*) FILTER (type IS NULL)
        FROM (SELECT *, CASE WHEN type = 'run_end' THEN {timed} END AS seconds FROM log)
        """).fetchall()[0]
    operators = connection.execute(f"""
        SELECT op, count(*), count(*) FILTER ({is_cached}), count(*) FILTER (status = 'OK'), avg({timed}),
            avg(coalesce({_number("retry_count")}, 0))
        FROM log WHERE type = 'step' AND op IS NOT NULL GROUP BY op ORDER BY count(*) DESC, op""").fetchall()
    return {
        "runs": runs,
        "cached": cached,
        "mean": mean,
        "p50": p50,
        "p95": p95,
        "operators": [
            {
                "op": op,
                "calls": calls,
                "cached": cached_calls,
                "success_rate": succeeded / calls,
                "mean_duration": seconds,
                "mean_retries": retries,
            }
            for op, calls, cached_calls, succeeded, seconds, retries in operators
        ],
        "unreadable": unreadable,
    }


def _load(connection: DuckDBPyConnection, log: Path) -> None:
    declared = ", ".join(f"{name}: 'JSON'" for name in (*_COLUMNS, "metadata"))
    paths = {name: (name, "$") for name in _COLUMNS} | {name: ("metadata", f"$.{name}") for name in _METADATA}
    texts = ", ".join(f"json_extract_string({column}, '{at}') AS {name}" for name, (column, at) in paths.items())
    connection.execute(f"""CREATE OR REPLACE TEMP TABLE log AS SELECT {texts} FROM read_json(
        {quoted(path_pattern(log))}, format = 'newline_delimited', ignore_errors = true, columns = {{{declared}}})""")


def _write_shortened(log: Path, short: Path) -> None:
    """Copy a log; of a long line only the values that are read."""
    with log.open("rb") as lines, short.open("wb") as copy:
        copy.writelines(line if len(line) <= _LONG_LINE else _shortened(line) for line in lines)


def _shortened(line: bytes) -> bytes:
    try:
        record = msgspec.json.decode(line)
        metadata = record.get("metadata")
    except (msgspec.DecodeError, AttributeError):
        return b"null\n"  # counted as unreadable
    values = {name: record.get(name) for name in _COLUMNS}
    if isinstance(metadata, dict):
        values["metadata"] = {name: metadata.get(name) for name in _METADATA}
    return msgspec.json.encode(values) + b"\n"


def _number(column: str) -> str:
    """Return the SQL for a column as a finite number, or NULL."""
    return f"CASE WHEN isfinite(TRY_CAST({column} AS DOUBLE)) THEN TRY_CAST({column} AS DOUBLE) END"
