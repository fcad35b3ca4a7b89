"""Batches as DuckDB views: `batches`, `cases`, `runs`, `verdicts`, `steps`, `llm_calls` and `observer`.

Every view has all its columns, in the same order, whatever its batches have. The rows come from the Parquet copies of
the logs (`batchlog/copy.py`), and the figures agree with summaries (WORK-5).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw, structs

from evalloom.batchlog.copy import Copy, CopyIndex, Source, batch_source
from evalloom.batchlog.folders import FOLDER, find, is_batch
from evalloom.batchlog.parquet import Place, connect, path_pattern, quoted_list
from evalloom.batchlog.read import warn_of_damage
from evalloom.batchlog.rows import TABLES, BatchRow, columns_of
from evalloom.core.errors import EvalloomError, usage_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from evalloom.engine.system import Catalog

VIEWS: dict[str, dict[str, str]] = {"batches": columns_of(BatchRow)} | {
    name: columns_of(row) for name, row in TABLES.items()
}
"""The columns of each view with their SQL types."""


class Views:
    """A DuckDB connection with the views over some batches. Close it, or use it in a `with` block."""

    def __init__(self, copies: list[tuple[Copy, CopyIndex]]) -> None:
        self.sources = [copy.source for copy, _ in copies]
        self._copies = [copy for copy, _ in copies]
        self.copied_files = [
            (copy.source, [copy.place / table.file for table in index.tables.values()]) for copy, index in copies
        ]
        self._place = Place()
        self.connection: DuckDBPyConnection = connect(self._place.path)
        self._create_batches()
        for name, columns in VIEWS.items():
            if name != "batches":
                files = [copy.place / index.tables[name].file for copy, index in copies if name in index.tables]
                self.connection.execute(f"CREATE VIEW {name} AS {_select(columns, files)}")

    @property
    def files(self) -> list[Path]:
        """The Parquet files behind the views."""
        return [path for _, files in self.copied_files for path in files]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and remove temporary copies."""
        self.connection.close()
        for copy in self._copies:
            copy.close()
        self._place.close()

    def __getitem__(self, view: str) -> DuckDBPyRelation:
        """Return a view as a DuckDB relation."""
        return self.connection.table(view) if view == "batches" else self.connection.view(view)

    def rows(self, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query of our own."""
        return self.connection.execute(query, list(parameters)).fetchall()

    def _create_batches(self) -> None:
        columns = VIEWS["batches"]
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        self.connection.execute(f"CREATE TABLE batches ({declared})")
        values = [
            [bytes(value).decode() if isinstance(value, Raw) else value for value in structs.astuple(source.batch)]
            for source in self.sources
            if source.is_listed
        ]
        if values:
            places = ", ".join("?" for _ in columns)
            self.connection.executemany(f"INSERT INTO batches VALUES ({places})", values)


def _select(columns: dict[str, str], files: list[Path]) -> str:
    """Return the query for the rows of a view."""
    if not files:
        nulls = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns.items())
        return f"SELECT {nulls} WHERE false"
    names = ", ".join(f'"{name}"' for name in columns)
    return f"SELECT {names} FROM read_parquet([{quoted_list(map(path_pattern, files))}])"


def open_views(
    paths: str | Path | Iterable[str | Path],
    catalog: Catalog,
    warn: Callable[[str], None] = lambda message: None,
    choose: Callable[[list[Source]], Iterable[Source]] = iter,
) -> Views:
    """Open the views over batches, folders of batches, and files of results that a system reads.

    A path is that of a batch or a folder; a text may also be the id of a batch, a beginning of it, or `latest`.
    A missing or stale copy is built first. `warn` gets a message for each line of a log that cannot be read, and for
    each batch of a folder that cannot. `choose` picks some of the sources, before anything is copied.
    """
    copies: dict[str, tuple[Copy, CopyIndex]] = {}
    try:
        for source in choose(list(_sources([paths] if isinstance(paths, str | Path) else paths, catalog, warn))):
            id = source.batch.batch
            if id in copies:
                if copies[id][0].source.path.resolve() == source.path.resolve():
                    continue
                one, other = copies[id][0].source.path.as_posix(), source.path.as_posix()
                message = f"{other}: has the id {id!r} of {one}, so that their rows could not be told apart. Name one"
                raise usage_error("same_batch_id", message)
            copy = Copy(source)
            index = copy.refresh()
            copies[id] = (copy, index)
            warn_of_damage(index.damage, source.path, warn)
        return Views(list(copies.values()))
    except BaseException:
        for copy, _ in copies.values():
            copy.close()
        raise


def _sources(paths: Iterable[str | Path], catalog: Catalog, warn: Callable[[str], None]) -> Iterator[Source]:
    """Yield the sources of all paths, those of a folder from the oldest to the newest."""
    for name in paths:
        # Not Path.exists, which raises for a name that is too long for a file.
        is_path = isinstance(name, Path) or (name not in ("latest", "last") and os.path.exists(name))
        path = Path(name) if is_path else find(str(name))
        if is_batch(path):
            yield _batch(path, catalog)
            continue
        folder = path / FOLDER if (path / FOLDER).is_dir() else path
        batches = sorted(filter(is_batch, folder.iterdir())) if folder.is_dir() else []
        for batch in batches:
            try:
                yield _batch(batch, catalog)
            except EvalloomError as error:
                # It is damaged, or somebody has just removed it; the others can be read.
                warn(str(error))
        if batches:
            continue
        if folder.parts[-2:] == FOLDER.parts:
            raise usage_error("no_batch", f"{folder.as_posix()}: there is no batch yet. 'evalloom run' makes one")
        results = catalog.result_sources(path)
        if results is None:
            found = "a file" if path.is_file() else "a folder without batches" if path.exists() else "nothing there"
            expected = "expected a batch, a folder of batches, or HOP result files"
            raise usage_error("no_batch", f"{path.as_posix()}: {expected}, got {found}")
        yield from results


def _batch(path: Path, catalog: Catalog) -> Source:
    return batch_source(path, catalog.formats, catalog.buckets, catalog.system_of)
