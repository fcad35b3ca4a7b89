"""Runs an SQL query of a user over the views: it reads them and nothing else, within limits of time and memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from msgspec import Struct

from evalloom.analysis.views import VIEWS, Views
from evalloom.batchlog.parquet import path_pattern, quoted_list
from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import printable

if TYPE_CHECKING:
    import duckdb
    from duckdb import DuckDBPyConnection

_BLOCK = 1024
_SHOWN_LINE = 72
"""The characters of a line that are shown above the caret."""
_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_BLANK = lazy_pattern(r"(?s:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*")
_LIMITS = (
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    # A name that is no view would be looked up among the variables of this program.
    "SET python_enable_replacements = false",
    "SET max_temp_directory_size = '20GB'",
    # Errors with the position and the candidates as data.
    "SET errors_as_json = true",
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
    # A WITH clause may hold an INSERT, and the statement is a SELECT all the same.
    "BEGIN TRANSACTION READ ONLY",
)
_NO_FILES = f"a query reads no files, only the views {', '.join(VIEWS)}. Name further batches after the query"
_INSTEAD = {
    "COPY": "--csv, --json or --parquet FILE writes the result to a file",
    "EXPORT": "--parquet FILE writes the result to a file",
    "CREATE": "name a part of the query with WITH name AS (…)",
    "SET": "--timeout sets the time limit; nothing else can be set",
    "PRAGMA": "'evalloom sql' without a query lists the views and their columns",
    "CALL": "'evalloom sql' without a query lists the views and their columns",
    "ATTACH": "name further batches or folders after the query",
    "MULTI": "list the values: PIVOT … ON column IN ('a', 'b')",
}
"""What to do instead of a statement that does not only read, by its type in DuckDB."""


class SqlError(EvalloomError):
    """A query that cannot be run; its text ends with the line of the error, and a caret below it."""

    def __init__(self, code: str, message: str, excerpt: str = "", exit_code: int = 2) -> None:
        super().__init__(code, message, exit_code)
        self.excerpt = excerpt

    def __str__(self) -> str:
        return f"{super().__str__()}{self.excerpt}"


class Column(Struct, frozen=True):
    """A column of a result."""

    name: str
    type: str


class SqlSession:
    """Views for one query of a user: their connection is locked from now on."""

    def __init__(self, views: Views, timeout_s: float, output: Path | None = None, name: str = "query") -> None:
        """`output` is a file that `write_parquet` will write. `name` is what the query is called in messages."""
        self._views = views
        self._timeout_s = self._left_s = timeout_s
        self._output = output
        self._name = name
        # Both spellings: a path with brackets is checked as the pattern that it is written as.
        files = {text for path in views.files for text in (path.as_posix(), path_pattern(path))}
        if output is not None:
            files |= {output.as_posix(), path_pattern(output)}
        views.connection.execute(f"SET allowed_paths = [{quoted_list(sorted(files))}]")
        for statement in _LIMITS:
            views.connection.execute(statement)

    def rows(self, query: str, limit: int | None = None) -> tuple[list[Column], Iterator[list[tuple[Any, ...]]]]:
        """Run a query; return its columns and its rows, in blocks. Raises SqlError, also while rows are read."""
        with self._guarded(query):
            statement = self._check(query)
            cursor = self._views.connection.execute(query)
            columns = [Column(name, str(kind)) for name, kind, *_ in cursor.description or ()]
            if any(_WITH_ZONE in column.type for column in columns):
                relation = self._views.connection.sql(statement).project(_without_zones(columns))
                cursor = self._views.connection.execute(relation.sql_query())
        return columns, self._blocks(query, cursor, limit)

    def _blocks(self, query: str, cursor: DuckDBPyConnection, limit: int | None) -> Iterator[list[tuple[Any, ...]]]:
        left = limit
        while left is None or left > 0:
            with self._guarded(query):
                block = cursor.fetchmany(_BLOCK if left is None else min(left, _BLOCK))
            if not block:
                return
            yield block
            left = None if left is None else left - len(block)

    def write_parquet(self, query: str, limit: int | None = None) -> int:
        """Write the result of a query to the output file, and return the number of rows."""
        assert self._output is not None
        connection = self._views.connection
        with self._guarded(query):
            relation = connection.sql(self._check(query))
            relation = relation if limit is None else relation.limit(limit)
            relation.write_parquet(self._output.as_posix(), compression="zstd")
            pattern = quoted_list([path_pattern(self._output)])
            [(rows,)] = connection.execute(f"SELECT count(*) FROM read_parquet([{pattern}])").fetchall()
        return int(rows)

    def _check(self, query: str) -> str:
        """Refuse everything but one statement that reads; return it without a semicolon and what follows that."""
        statements = self._views.connection.extract_statements(query)
        if not statements:
            raise SqlError("bad_sql", f"{self._name}: expected a SELECT statement, got an empty query")
        end = 0
        for number, statement in enumerate(statements):
            text = statement.query.strip()
            start = max(query.find(text, end), end)
            blank = _BLANK.match(query, start)
            at = blank.end() if blank else start
            kind = statement.type.name
            if kind != "SELECT":
                word = query[at:].split(maxsplit=1)[0].upper().rstrip(";")
                instead = _INSTEAD.get(kind, "write a SELECT statement")
                message = f"{word} is refused, because a query only reads. Instead, {instead}"
                raise self._sql_error("query_refused", message, query, at)
            if number:
                message = "expected one statement, got a second one. Join them with WITH or UNION ALL"
                raise self._sql_error("query_refused", message, query, at)
            end = start + len(text)
        return _without_end(statements[0].query)

    @contextmanager
    def _guarded(self, query: str) -> Iterator[None]:
        """Limit the time of a block, and turn the errors of DuckDB into ours."""
        import duckdb

        # Only the time that DuckDB takes counts, not that of a reader who scrolls through the rows.
        timer = threading.Timer(self._left_s, self._views.connection.interrupt)
        timer.daemon = True
        start = perf_counter()
        timer.start()
        try:
            yield
        except duckdb.InterruptException:
            message = f"stopped after {self._timeout_s:g} s. Select less, or allow more with --timeout"
            raise SqlError("query_timeout", f"{self._name}: {message}", exit_code=3) from None
        except duckdb.OutOfMemoryException:
            message = "needs more memory than the limit of 2 GB. Select fewer columns or rows, or aggregate"
            raise SqlError("query_memory", f"{self._name}: {message}", exit_code=3) from None
        except duckdb.Error as error:
            raise self._explained(error, query) from None
        finally:
            timer.cancel()
            self._left_s = max(0.0, self._left_s - (perf_counter() - start))

    def _explained(self, error: duckdb.Error, query: str) -> SqlError:
        """Return an error of DuckDB in our words, with its position."""
        details = _details(error)
        reason, kind, subtype = details["exception_message"], details["exception_type"], details.get("error_subtype")
        # DuckDB counts bytes.
        position = details.get("position", "")
        at = len(query.encode()[: int(position)].decode(errors="ignore")) if position.isdigit() else None
        if changed := self._changed(kind, reason):
            return changed
        if kind == "Permission":
            return self._sql_error("query_refused", _NO_FILES, query, at)
        if kind == "TransactionContext":
            return self._sql_error("query_refused", "a query only reads: expected SELECT, got a change", query, at)
        name = details.get("name", "")
        candidates = [text.strip('" ') for text in details.get("candidates", "").split(",") if text.strip('" ')]
        if subtype == "COLUMN_NOT_FOUND":
            hint = f". Did you mean {' or '.join(candidates[:3])}?" if candidates else ""
            return self._sql_error("bad_sql", f"there is no column {name!r}{hint}", query, at)
        if subtype == "MISSING_ENTRY" and details.get("type") == "Table":
            if "/" in name or "." in name:
                return self._sql_error("query_refused", _NO_FILES, query, at)
            near = [text for text in candidates if text in VIEWS]
            hint = f". Did you mean {near[0]}?" if near else f". The views are {', '.join(VIEWS)}"
            return self._sql_error("bad_sql", f"there is no view {name!r}{hint}", query, at)
        if subtype == "SYNTAX_ERROR" and at is not None and query[at : at + 5].lower() == "check":
            message = 'check is a word of SQL; the column of this name is written "check", in double quotes'
            return self._sql_error("bad_sql", message, query, at)
        return self._sql_error("bad_sql", reason.strip().splitlines()[0].rstrip(".!"), query, at)

    def _changed(self, kind: str, reason: str) -> SqlError | None:
        """Return the error of a copy that is gone or damaged, if that is the reason."""
        for source, files in self._views.copied_files:
            # A file that is gone is a permission error for DuckDB, because it is looked up as a pattern.
            if kind in ("IO", "Permission") and not all(path.exists() for path in files):
                message = f"{source.path.as_posix()}: was removed or changed while it was read. Run the query again"
                return SqlError("batch_changed", message, exit_code=3)
            if kind != "Permission" and any(path.name in reason for path in files):
                folder = files[0].parent.as_posix()
                message = f"{folder}: the copy of the log is damaged. Remove this folder; it is built again"
                return SqlError("bad_copy", message, exit_code=3)
        return None

    def _sql_error(self, code: str, message: str, query: str, at: int | None) -> SqlError:
        """Return an error with its line and column, and the line itself."""
        if at is None:
            return SqlError(code, f"{self._name}: {message}")
        start = query.rfind("\n", 0, at) + 1
        line, column = query.count("\n", 0, at) + 1, at - start + 1
        text = query[start:].split("\n", 1)[0]
        # A long line is shown around the error.
        left = max(0, min(column - _SHOWN_LINE // 2, len(text) - _SHOWN_LINE))
        shown = ("…" if left else "") + text[left : left + _SHOWN_LINE]
        shown += "…" if left + _SHOWN_LINE < len(text) else ""
        before = printable(shown[: column - 1 - left + bool(left)])
        # A Chinese character takes two cells.
        cells = sum(2 if east_asian_width(char) in "WF" else 1 for char in before)
        return SqlError(code, f"{self._name}:{line}:{column}: {message}", f"\n  {printable(shown)}\n  {' ' * cells}^")


def _without_end(query: str) -> str:
    """Return a statement without its semicolon and a comment behind it, as a part of another statement."""
    import duckdb

    text = query.encode()
    for position, kind in reversed(duckdb.tokenize(query)):
        if kind != duckdb.token_type.comment:
            return text[:position].decode() if text[position : position + 1] == b";" else query
    return query


def _without_zones(columns: list[Column]) -> str:
    """Return a projection with times in UTC: for a zone, the driver needs pytz, which is not a dependency."""
    kinds = {_WITH_ZONE: "TIMESTAMP"}
    # By position, because two columns may have one name.
    return ", ".join(
        f"CAST(#{number} AS {kinds.get(column.type, 'VARCHAR')})" if _WITH_ZONE in column.type else f"#{number}"
        for number, column in enumerate(columns, 1)
    )


def _details(error: duckdb.Error) -> dict[str, str]:
    """Return the fields of an error; those without a position may be plain text, such as `Binder Error: …`."""
    text = str(error)
    kind, _, rest = text.partition(" Error: ")
    try:
        details = json.loads(rest)
    except ValueError:
        details = None
    plain = {"exception_type": kind, "exception_message": rest or text}
    return plain | details if isinstance(details, dict) else plain
