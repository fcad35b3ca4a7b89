"""`sqlite://file.db` and `sql://name`: the first cell of a query to SQLite or DuckDB, which is never written."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import did_you_mean, quote
from evalloom.replay.resolvers.base import ResolverCall, find, to_text

if typing.TYPE_CHECKING:
    import sqlite3

    from duckdb import DuckDBPyConnection

# Each alternative begins with another character and is possessive, so matching takes linear time.
_FIRST_WORD = lazy_pattern(r"(?:\s++|--[^\n]*+|/\*.*?\*/)*+([a-z]*)", re.DOTALL | re.IGNORECASE)
_MAX_CHARACTERS = 100_000
_NO_ROWS = (
    "the query returned no row; values of the dataset row are not filled into it. "
    "SELECT coalesce((SELECT …), '') always returns a text"
)


def _read_only() -> CallError:
    return CallError("readonly_required", "only one statement is allowed, and only SELECT or WITH … SELECT")


def _check_statement(sql: str) -> None:
    """Refuse a statement that is not a query by its first word; the database itself refuses all other writes."""
    if not sql.strip():
        raise CallError("query_failed", "there is no query. Write a SELECT as the variable's value")
    if len(sql) > _MAX_CHARACTERS:
        raise CallError(
            "query_failed", f"the query has {len(sql):,} characters, at most {_MAX_CHARACTERS:,} are allowed"
        )
    match = _FIRST_WORD.match(sql)
    if match is None or match[1].upper() not in ("SELECT", "WITH"):
        raise _read_only()


def _first_cell(row: tuple[Any, ...] | None) -> str:
    """Return the first cell of a row as a text: NULL is empty, numbers and nested values are JSON."""
    if row is None:
        raise CallError("no_rows", _NO_ROWS)
    if not isinstance(row[0], bytes):
        return to_text(row[0])
    try:
        return row[0].decode()
    except UnicodeDecodeError:
        raise CallError("query_failed", "the first cell contains bytes that are not UTF-8. Select a text") from None


def read_source(call: ResolverCall) -> str:
    """Run the query in the value on a data source of the settings; return the first cell."""
    _check_statement(call.value)
    source = call.reach.sources.get(call.target)
    if source is None:
        guess = (
            did_you_mean(call.target, call.reach.sources) or ". Name it under 'resolvers: sources:' in evalloom.yaml"
        )
        raise CallError("connect_failed", f"there is no data source {quote(call.target)}{guess}")
    if not source.path.is_file():
        # The name only: clients of the service need not learn the folders of its machine.
        raise CallError("connect_failed", f"there is no file {quote(source.path.name)}")
    return _query_duckdb(source.path, call) if source.kind == "duckdb" else _query_sqlite(source.path, call)


# -- SQLite -------------------------------------------------------------------------------------------

_MOST_BYTES = 500_000
"""The limit of one cell, so that `zeroblob(1e9)` does not fill the memory; the clamp leaves 20,000. `instr` of two
such cells takes up to two seconds, which no deadline can interrupt, and its time grows with their square."""
_MAX_PATTERN = 1_000
"""The limit of LIKE and GLOB patterns: their time may grow with its square, and no deadline interrupts it."""
_STEPS = 300
"""Instructions of SQLite between two checks of the deadline: a few microseconds. The checks cost a tenth."""
_REFUSED = ("not authorized", "may not be modified", "one statement at a time")
"""Parts of the messages that mean a refused statement."""
_DENIED_FUNCTIONS = ("load_extension", "fts3_tokenizer")


def read_sqlite(call: ResolverCall) -> str:
    """Run the query in the value on a file inside the data folder; return the first cell."""
    _check_statement(call.value)
    try:
        path = find(call.reach, call.target)
    except CallError as error:
        raise CallError("connect_failed", error.message) if error.code == "not_found" else error from None
    return _query_sqlite(path, call)


def _query_sqlite(path: Path, call: ResolverCall) -> str:
    import sqlite3

    connection = None
    try:
        # Only a URI can open a file without creating or writing it.
        address = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, call.time_left(), isolation_level=None, uri=True)
        _restrict(connection, call.deadline)
        return _first_cell(connection.execute(call.value).fetchone())
    except sqlite3.Error as error:
        raise _sqlite_error(error, call) from None
    finally:
        if connection is not None:
            connection.close()


def _restrict(connection: sqlite3.Connection, deadline: float) -> None:
    """Restrict a connection to reading, in limited time and memory."""
    import sqlite3

    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
    connection.text_factory = lambda raw: raw.decode(errors="replace")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow reading, and what SQLite itself does in order to read virtual tables."""
    import sqlite3

    if action == sqlite3.SQLITE_FUNCTION:
        is_allowed = (second or "").lower() not in _DENIED_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        # Full-text tables use it to detect changes.
        is_allowed = first == "data_version"
    elif action == sqlite3.SQLITE_UPDATE:
        # SQLite reports the declaration of a virtual table like this; no statement of a user can update that table.
        is_allowed = first == "sqlite_master"
    else:
        is_allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _sqlite_error(error: Exception, call: ResolverCall) -> CallError:
    """Map an error of SQLite to the error code of the stage that failed."""
    import sqlite3

    message = str(error)
    # The lower byte is the primary code; errors of the Python module itself have none.
    code = getattr(error, "sqlite_errorcode", 0)
    unfinished = (sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTLOCK)
    if code & 0xFF == sqlite3.SQLITE_INTERRUPT:
        return call.too_slow()
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return CallError("timeout", f"the database was locked by another process for {call.reach.timeout_s:g} s")
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return CallError("connect_failed", "is not a SQLite database")
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN or code in unfinished:
        why = "it has an unfinished transaction, or is in WAL mode in a folder that is not writable"
        advice = "Open it once with a program that may write"
        return CallError("connect_failed", f"the database cannot be read without writing ({message}): {why}. {advice}")
    if code & 0xFF in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY) or any(word in message for word in _REFUSED):
        return _read_only()
    return CallError("query_failed", message)


# -- DuckDB -------------------------------------------------------------------------------------------

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "1",
    "lock_configuration": "true",
}
"""One configuration for all: DuckDB refuses a second connection of a process to a file with another one."""


def _query_duckdb(path: Path, call: ResolverCall) -> str:
    import duckdb

    try:
        connection = duckdb.connect(str(path), read_only=True, config=_CONFIG)
    except duckdb.Error as error:
        message = _first_line(error).replace(str(path), path.name)
        raise CallError("connect_failed", f"cannot be opened for reading: {message}") from None
    with connection, _deadline(connection, call):
        try:
            statements = connection.extract_statements(call.value)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise _read_only()
            return _first_cell(connection.execute(statements[0]).fetchone())
        except duckdb.InterruptException:
            raise call.too_slow() from None
        except duckdb.Error as error:
            raise _duckdb_error(error) from None


@contextmanager
def _deadline(connection: DuckDBPyConnection, call: ResolverCall) -> Iterator[None]:
    """Interrupt the connection at the deadline."""
    timer = Timer(call.time_left(), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _duckdb_error(error: Exception) -> CallError:
    """Map an error of DuckDB to the error code of the stage that failed."""
    message = str(error)
    # DuckDB 1 refuses a CTE that writes while it parses it.
    if "attached in read-only mode" in message or "A CTE needs a SELECT" in message:
        return _read_only()
    # The driver needs pytz, which is not a dependency, for times with a zone.
    if message.startswith("Invalid Input Error: Required module 'pytz'"):
        return CallError("query_failed", "the first cell is a time with a time zone. Write CAST(… AS VARCHAR)")
    return CallError("query_failed", _first_line(error))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
