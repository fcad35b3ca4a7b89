"""Pages of single results: sorted by known columns only, filtered by bound values only (HOP-19)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, quote
from evalloom.hop.results.rows import json_text
from evalloom.hop.results.stats import GROUPS
from evalloom.hop.results.table import NO_DETAILS, Position, Table, read_details
from evalloom.matchers.base import number_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COLUMNS = ("file", "id", "tag", "difficulty", "profile", "status", "outcome", "retry_count", "correct", "error")
FIELD = "result."
"""The prefix of a field with the same name as a column."""
SHOWN = "file, part, row, id, tag, difficulty, profile, completed, outcome, correct, retry_count, error"


def query_results(
    connection: DuckDBPyConnection,
    table: Table,
    folder: Path,
    page: tuple[int, int],
    sort_by: str,
    filters: Mapping[str, Any],
) -> Record:
    """Return `{total, rows}`: the number of matching results, and one page `(offset, limit)` of them."""
    conditions, parameters = _conditions(table, filters)
    order = _order(table, sort_by)
    offset, limit = checked_page(page)
    source = f"FROM ({table.query}) WHERE {conditions}"
    [(total,)] = connection.execute(f"SELECT count(*) {source}", parameters).fetchall()
    rows = connection.execute(
        f"SELECT {SHOWN} {source} ORDER BY {order} LIMIT {limit} OFFSET {offset}", parameters
    ).fetchall()
    details = read_details(folder, table.index, [Position(*row[:3]) for row in rows])
    return {"total": total, "rows": [as_record(row, details) for row in rows]}


def as_record(row: tuple[Any, ...], details: Mapping[Position, Record]) -> Record:
    """Return one result as a record, with its details."""
    file, part, number, identity, tag, difficulty, profile, completed, outcome, correct, retry_count, error = row
    return {
        "file": file,
        "id": None if identity is None else json.loads(identity),
        "tag": tag,
        "difficulty": difficulty,
        "profile": profile,
        "status": "OK" if completed else "ERROR",
        "outcome": outcome,
        "correct": correct,
        "retry_count": int(retry_count or 0),
        "error": error,
        **details.get(Position(file, part, number), NO_DETAILS),
    }


def checked_page(page: tuple[Any, Any]) -> tuple[int, int]:
    """Check the offset and the limit of a page."""
    for name, value in zip(("offset", "limit"), page, strict=True):
        if type(value) is not int or not 0 <= value < 2**60:
            raise usage_error("bad_page", f"{name}: expected a whole number from 0 on, got {quote(value)}")
    return page


def _order(table: Table, sort_by: str) -> str:
    """Return the ORDER BY clause: numbers before texts, ties in file order."""
    name = sort_by.removeprefix("-")
    if not name:
        return "file, part, row"
    column, is_json = _column(table, name)
    turn = "DESC" if sort_by.startswith("-") else "ASC"
    number = f"TRY_CAST({column} AS DOUBLE) {turn} NULLS LAST, " if is_json else ""
    return f"{number}{column} {turn} NULLS LAST, file, part, row"


def _column(table: Table, name: str) -> tuple[str, bool]:
    """Return the SQL of a column, and whether it holds JSON texts."""
    if name in COLUMNS:
        return "CASE WHEN completed THEN 'OK' ELSE 'ERROR' END" if name == "status" else name, name == "id"
    field = name.removeprefix(FIELD)
    if field in table.names.fields:
        return table.field(field), True
    columns = [
        *COLUMNS,
        *(FIELD + field_name if field_name in COLUMNS else field_name for field_name in table.names.fields),
    ]
    hint = did_you_mean(name, columns) or f". Known are {', '.join(columns)}"
    raise usage_error("unknown_result_column", f"there is no column {name!r}{hint}")


def _conditions(table: Table, filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    conditions, parameters = ["true"], []
    for name, wanted in filters.items():
        column, is_json = _column(table, name)
        values = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
        either = []
        for value in values:
            condition, bound = _equals(column, is_json, name, value)
            either.append(condition)
            parameters += bound
        conditions.append(f"({' OR '.join(either) or 'false'})")
    return " AND ".join(conditions), parameters


def _equals(column: str, is_json: bool, name: str, value: Any) -> tuple[str, list[Any]]:
    """Return the condition that a column equals a value; "3" matches 3 too, because command lines pass texts."""
    if value is None or value == GROUPS.get(name):
        return f"({column} IS NULL OR {column}::VARCHAR = 'null')", []
    if name == "correct":
        return f"{column} = TRY_CAST(? AS BOOLEAN)", [str(value)]
    if name == "retry_count" or (is_json and number_of(value) is not None):
        return f"TRY_CAST({column} AS DOUBLE) = TRY_CAST(? AS DOUBLE)", [str(value)]
    if is_json:
        texts = [json_text(value), *([value] if isinstance(value, str) else [])]
        return f"{column} IN ({', '.join('?' for _ in texts)})", texts
    return f"{column} = ?", [value if isinstance(value, str) else json_text(value)]
