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

from evalloom.batchlog.columns import VIEWS as ROW_VIEWS
from evalloom.batchlog.columns import BatchRow, columns_of
from evalloom.batchlog.copy import Copy, CopyIndex, Source, batch_source
from evalloom.batchlog.folders import FOLDER, find, is_batch
from evalloom.batchlog.parquet import Place, connect, path_pattern, quoted_list
from evalloom.batchlog.read import Damage, warn_of_damage
from evalloom.core.errors import EvalloomError, usage_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from evalloom.engine.system import Catalog

VIEWS: dict[str, dict[str, str]] = {"batches": columns_of(BatchRow)} | {
    name: columns_of(row) for name, row in ROW_VIEWS.items()
}
"""The columns of each view with their SQL types."""


class Views:
    """A DuckDB connection with the views over some batches. Close it, or use it in a `with` block."""

    def __init__(self) -> None:
        self._place = Place()
        self.connection: DuckDBPyConnection = connect(self._place.path)
        self._copies: dict[str, tuple[Copy, CopyIndex]] = {}
        self.warnings: list[str] = []
        """What cannot be read in the logs, and what is missing there."""
        self.damage: list[Damage] = []
        """The same, one by one."""

    def add(self, source: Source, warn: Callable[[str], None]) -> None:
        """Add a source, and build its copy if necessary; one that is there already is not added again."""
        id = source.batch.batch
        if id in self._copies:
            first = self._copies[id][0].source.path
            if first.resolve() == source.path.resolve():
                return
            message = f"has the id {id!r} of {first.as_posix()}, so that their rows could not be told apart. Name one"
            raise usage_error("same_batch_id", f"{source.path.as_posix()}: {message}")
        copy = Copy(source, self.connection)
        try:
            index = copy.refresh()
        except BaseException:
            copy.close()
            raise
        self._copies[id] = (copy, index)
        self.damage += index.damage
        warn_of_damage(index.damage, source.path, self.warnings.append)
        warn_of_damage(index.damage, source.path, warn)

    def create(self) -> None:
        """Create the views over everything that was added."""
        self._create_batches()
        for name, columns in VIEWS.items():
            if name != "batches":
                copies = self._copies.values()
                files = [copy.place / index.tables[name].file for copy, index in copies if name in index.tables]
                self.connection.execute(f"CREATE VIEW {name} AS {_select(columns, files)}")

    @property
    def sources(self) -> list[Source]:
        """The batches and result files behind the views."""
        return [copy.source for copy, _ in self._copies.values()]

    @property
    def copied_files(self) -> list[tuple[Source, list[Path]]]:
        """The Parquet files of each source."""
        return [
            (copy.source, [copy.place / table.file for table in index.tables.values()])
            for copy, index in self._copies.values()
        ]

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
        for copy, _ in self._copies.values():
            copy.close()
        self._place.close()

    def __getitem__(self, view: str) -> DuckDBPyRelation:
        """Return a view as a DuckDB relation."""
        return self.connection.table(view) if view == "batches" else self.connection.view(view)

    def rows(self, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query of our own; several threads may ask at once."""
        # A cursor of its own: a connection runs one query at a time, and has one result.
        with self.connection.cursor() as cursor:
            return cursor.execute(query, list(parameters)).fetchall()

    def _create_batches(self) -> None:
        columns = VIEWS["batches"]
        declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        self.connection.execute(f"CREATE TABLE batches ({declared})")
        values = [
            bytes(value).decode() if isinstance(value, Raw) else value
            for copy, _ in self._copies.values()
            if copy.source.is_listed
            for value in structs.astuple(copy.source.batch)
        ]
        if values:
            row = f"({', '.join('?' for _ in columns)})"
            rows = ", ".join([row] * (len(values) // len(columns)))
            self.connection.execute(f"INSERT INTO batches VALUES {rows}", values)


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
    choose: Callable[[list[Source]], Iterable[Source]] | None = None,
) -> Views:
    """Open the views over batches, folders of batches, and files of results that a system reads.

    A path is that of a batch or a folder; a text may also be the id of a batch, a beginning of it, or `latest`.
    A missing or stale copy is built first. `warn` gets a message for each line of a log that cannot be read, and for
    each batch of a folder that cannot. `choose` picks some of the sources, before anything is copied.
    """
    views = Views()
    try:
        sources = _sources([paths] if isinstance(paths, str | Path) else paths, catalog, warn)
        if choose is not None:
            listed = list(sources)
            chosen = {id(source) for source in choose([source for source, _ in listed])}
            sources = (pair for pair in listed if id(pair[0]) in chosen)
        for source, is_named in sources:
            try:
                views.add(source, warn)
            except EvalloomError as error:
                if is_named or error.code != "no_batch":
                    raise
                warn(str(error))
        views.create()
    except BaseException:
        views.close()
        raise
    return views


def _sources(
    paths: Iterable[str | Path], catalog: Catalog, warn: Callable[[str], None]
) -> Iterator[tuple[Source, bool]]:
    """Yield the sources of all paths, and whether each is named itself; those of a folder begin with the oldest."""
    for name in paths:
        # Not Path.exists, which raises for a name that is too long for a file.
        is_path = isinstance(name, Path) or (name not in ("latest", "last") and os.path.exists(name))
        path = Path(name) if is_path else find(str(name))
        if is_batch(path):
            yield _batch(path, catalog), True
            continue
        folder = path / FOLDER if (path / FOLDER).is_dir() else path
        batches = sorted(filter(is_batch, folder.iterdir())) if folder.is_dir() else []
        for batch in batches:
            try:
                source = _batch(batch, catalog)
            except EvalloomError as error:
                # It is damaged, or somebody has just removed it; the others can be read.
                warn(str(error))
            else:
                yield source, False
        if batches:
            continue
        if folder.parts[-2:] == FOLDER.parts:
            raise usage_error("no_batch", f"{folder.as_posix()}: there is no batch yet. 'evalloom run' makes one")
        results = catalog.result_sources(path)
        if results is None:
            found = "a file" if path.is_file() else "a folder without batches" if path.exists() else "nothing there"
            expected = "expected a batch, a folder of batches, or HOP result files"
            raise usage_error("no_batch", f"{path.as_posix()}: {expected}, got {found}")
        for source in results:
            yield source, True


def _batch(path: Path, catalog: Catalog) -> Source:
    return batch_source(path, catalog.formats, catalog.buckets, catalog.system_of)
