"""`evalloom sql`: runs an SQL query over the views of batches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from evalloom.analysis.sql import SqlSession
from evalloom.analysis.views import VIEWS, open_views
from evalloom.batchlog import FOLDER
from evalloom.console.catalog import current_catalog
from evalloom.console.layout import Line, print_lines
from evalloom.console.outcome import warn
from evalloom.console.rows_text import csv_lines, json_lines, row_lines
from evalloom.core.errors import usage_error
from evalloom.core.text import pluralize
from evalloom.files.write import refuse_unwritable

_SHOWN = 100
"""The rows of a table, unless --limit says otherwise."""


@click.command("sql")
@click.argument("query", metavar="[QUERY]", default="")
@click.argument("batches", metavar="[BATCH|FOLDER]…", nargs=-1)
@click.option("-f", "--file", default="", metavar="FILE", help="Read the query from a file; - is standard input.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option("--parquet", default="", metavar="FILE", help="Write the rows to a Parquet file.")
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help=f"Print at most N rows. Default of a table: {_SHOWN}."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop a query that takes longer.",
)
def command(
    query: str,
    batches: tuple[str, ...],
    file: str,
    as_csv: bool,
    as_json: bool,
    parquet: str,
    limit: int | None,
    timeout: float,
) -> int:
    """Run an SQL query over batches, or list the views that it can read.

    QUERY is a SELECT statement of DuckDB; - reads it from standard input. BATCH is an id, a prefix of one, 'latest' or
    a path; FOLDER has batches or HOP result files. Without them, all batches in .evalloom/batches are read.

    \b
    evalloom sql
    evalloom sql "select status, count(*) from runs group by status" latest
    evalloom sql -f failures.sql --csv > failures.csv
    """
    if sum((as_csv, as_json, bool(parquet))) > 1:
        raise usage_error("bad_option", "--csv, --json, --parquet: expected one of them at a time")
    if file and query:
        query, batches = "", (query, *batches)
    if not (file or query):
        print_lines(_view_lines())
        return 0
    if (
        not file
        and len(query.split()) == 1
        and any(len(batch.split()) > 1 and not os.path.exists(batch) for batch in batches)
    ):
        raise usage_error("bad_option", f"sql: expected the query before the batches, got {query!r} first")
    name = "query" if file in ("", "-") else file
    text = _query_text(query, file)
    if parquet:
        refuse_unwritable(Path(parquet))
    with open_views(batches or [FOLDER], current_catalog(), warn) as views:
        if parquet:
            target = Path(os.path.realpath(parquet))
            # Written beside it, because a query that fails must not leave half a file.
            temporary = target.with_name(f".evalloom.{os.urandom(6).hex()}.tmp")
            try:
                rows = SqlSession(views, timeout, temporary, name).write_parquet(text, limit)
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            click.echo(f"wrote {pluralize(rows, 'row')} to {parquet}")
            return 0
        session = SqlSession(views, timeout, name=name)
        # One more than is shown tells whether there are more.
        wanted = limit if as_csv or as_json else (_SHOWN if limit is None else limit) + 1
        columns, blocks = session.rows(text, wanted)
        names, types = [column.name for column in columns], [column.type for column in columns]
        if as_csv:
            for part in csv_lines(names, blocks):
                click.echo(part, nl=False)
        elif as_json:
            for lines in json_lines(names, types, blocks):
                click.echo(lines, nl=False)
        else:
            found = [row for block in blocks for row in block]
            print_lines(_table_lines(names, types, found, wanted))
    return 0


def _table_lines(
    names: list[str], types: list[str], rows: list[tuple[object, ...]], wanted: int | None
) -> Iterator[Line]:
    has_more = wanted is not None and len(rows) == wanted
    shown = rows[:-1] if has_more else rows
    yield from row_lines(names, types, shown)
    if not rows:
        yield "no rows", "dim"
    elif has_more:
        yield f"… and more rows after {len(shown):,}; --limit shows more, --csv and --json all", "dim"


def _query_text(query: str, file: str) -> str:
    if "-" in (query, file):
        return sys.stdin.read()
    if not file:
        return query
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise usage_error("query_unreadable", f"{file}: expected a file with a query, got: {reason.lower()}") from None


def _view_lines() -> Iterator[Line]:
    """Yield the views with their columns."""
    for name, columns in VIEWS.items():
        yield name, "bold"
        yield "  " + ", ".join(f"{_written(column)} {kind}" for column, kind in columns.items()), ""
    yield "", ""
    yield 'Example: evalloom sql "select status, count(*) from runs group by status" latest', ""


def _written(column: str) -> str:
    """Return a column as it is written in a query: two of them are words of SQL."""
    return f'"{column}"' if column in ("check", "where") else column
