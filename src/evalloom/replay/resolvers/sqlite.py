"""`sqlite://file.db`: the first cell of a query to a database in the data folder, which is never written."""

from __future__ import annotations

import typing
from pathlib import Path
from time import monotonic

from evalloom.core.errors import CallError
from evalloom.replay.resolvers.call import Call, find
from evalloom.replay.resolvers.query import check_statement, first_cell, read_only

if typing.TYPE_CHECKING:
    import sqlite3

_MOST_BYTES = 500_000
"""Of one cell: the clamp leaves 20,000 of them, and `zeroblob(1e9)` is not to fill the memory. `instr` of two such
cells takes up to two seconds, which no deadline can cut short; twice as long they would take four times as much."""
_MAX_PATTERN = 1_000
"""Of LIKE and GLOB, whose time may grow with the square of it, out of the deadline's sight."""
_STEPS = 300
"""Of the database's machine between two looks at the clock: a few microseconds. Looking costs a tenth of the time."""
_DENIED_FUNCTIONS = ("load_extension", "fts3_tokenizer")


def read_sqlite(call: Call) -> str:
    """The first cell of the query in the value, from a file inside the data folder."""
    check_statement(call.value)
    try:
        path = find(call.reach, call.target)
    except CallError as error:
        raise CallError("connect_failed", error.message) if error.code == "not_found" else error from None
    return query_sqlite(path, call)


def query_sqlite(path: Path, call: Call) -> str:
    """The first cell of the query in the value, from this very file."""
    import sqlite3

    connection = None
    try:
        # A URI, since only there one can say that the file is neither to be made nor to be written.
        address = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, call.time_left(), isolation_level=None, uri=True)
        _restrict(connection, call.deadline)
        return first_cell(connection.execute(call.value).fetchone())
    except sqlite3.Error as error:
        raise _to_call_error(error, call) from None
    finally:
        if connection is not None:
            connection.close()


def _restrict(connection: sqlite3.Connection, deadline: float) -> None:
    """Leaves a connection nothing but reading, for a limited time and in limited memory."""
    import sqlite3

    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
    connection.text_factory = lambda raw: raw.decode(errors="replace")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Whether SQLite may do what a statement asks for: reading, and what virtual tables do in order to be read."""
    import sqlite3

    if action == sqlite3.SQLITE_FUNCTION:
        is_allowed = (second or "").lower() not in _DENIED_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        # Full-text tables ask it to see whether they have changed.
        is_allowed = first == "data_version"
    elif action == sqlite3.SQLITE_UPDATE:
        # How SQLite asks for declaring a virtual table; no statement of a user can ever update that table.
        is_allowed = first == "sqlite_master"
    else:
        is_allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _to_call_error(error: Exception, call: Call) -> CallError:
    """What SQLite says, under the code that tells where it went wrong."""
    import sqlite3

    message = str(error)
    # The upper bits say more about the same; messages of the Python module itself have no code.
    code = getattr(error, "sqlite_errorcode", 0)
    unfinished = (sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTLOCK)
    if code & 0xFF == sqlite3.SQLITE_INTERRUPT:
        return call.too_slow()
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return CallError("timeout", f"somebody else kept the database locked for {call.reach.timeout_s:g} s")
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return CallError("connect_failed", "is no SQLite database")
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN or code in unfinished:
        why = "it was left amid a change, or is in WAL mode in a folder that cannot be written"
        advice = "Open it once with a program that may write"
        return CallError("connect_failed", f"the database cannot be read without writing ({message}): {why}. {advice}")
    if code & 0xFF in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY) or any(word in message for word in _REFUSED):
        return read_only()
    return CallError("query_failed", message)


_REFUSED = ("not authorized", "may not be modified", "one statement at a time")
