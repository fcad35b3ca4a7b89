"""What queries to any database share: which are allowed, and how the first cell becomes a text."""

from __future__ import annotations

import re
from typing import Any

from evalloom.core.errors import CallError
from evalloom.replay.resolvers.resolution import text_of

# Each alternative begins with another sign and gives nothing back, so the time is linear.
_FIRST_WORD = re.compile(r"(?:\s++|--[^\n]*+|/\*.*?\*/)*+([a-z]*)", re.DOTALL | re.IGNORECASE)
_MAX_CHARACTERS = 100_000


_NO_ROWS = (
    "the query found no row; what a row of the dataset says is not filled into it. "
    "SELECT coalesce((SELECT …), '') gives a text even then"
)


def read_only() -> CallError:
    return CallError("readonly_required", "only one statement is allowed, and only SELECT or WITH … SELECT")


def check_statement(sql: str) -> None:
    """Refuses what is no query by its first word; what else a statement may do is for the database to refuse."""
    if not sql.strip():
        raise CallError("query_failed", "there is no query. Write a SELECT as the variable's value")
    if len(sql) > _MAX_CHARACTERS:
        raise CallError(
            "query_failed", f"the query has {len(sql):,} characters, at most {_MAX_CHARACTERS:,} are allowed"
        )
    match = _FIRST_WORD.match(sql)
    if match is None or match[1].upper() not in ("SELECT", "WITH"):
        raise read_only()


def first_cell(row: tuple[Any, ...] | None) -> str:
    """The first cell of a row as a text: nothing for NULL, and what JSON would write for numbers and nested values."""
    if row is None:
        raise CallError("no_rows", _NO_ROWS)
    if not isinstance(row[0], bytes):
        return text_of(row[0])
    try:
        return row[0].decode()
    except UnicodeDecodeError:
        raise CallError("query_failed", "the first cell holds bytes that are no UTF-8. Select a text") from None
