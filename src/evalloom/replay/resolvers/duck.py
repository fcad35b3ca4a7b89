"""DuckDB as a data source: one query to a file that is never written, and to nothing else."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from evalloom.core.errors import CallError
from evalloom.replay.resolvers.call import Call
from evalloom.replay.resolvers.query import first_cell, read_only

if typing.TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
"""Always the same one, since connections of one process to one file have to share it."""


def query_duckdb(path: Path, call: Call) -> str:
    """The first cell of the query in the value. Raises CallError."""
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
                raise read_only()
            return first_cell(connection.execute(statements[0]).fetchone())
        except duckdb.InterruptException:
            raise call.too_slow() from None
        except duckdb.Error as error:
            raise _to_call_error(error) from None


@contextmanager
def _deadline(connection: DuckDBPyConnection, call: Call) -> Iterator[None]:
    """Interrupts a connection that is still at work when the time is over."""
    timer = Timer(call.time_left(), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _to_call_error(error: Exception) -> CallError:
    """What DuckDB says, under the code that tells where it went wrong."""
    message = str(error)
    if "attached in read-only mode" in message:
        return read_only()
    # Python's own times know no zones by name, so the driver asks for a package that we do without.
    if message.startswith("Invalid Input Error: Required module 'pytz'"):
        return CallError("query_failed", "the first cell is a time with a time zone. Write CAST(… AS VARCHAR)")
    return CallError("query_failed", _first_line(error))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
