"""The Parquet copy of a log, for queries. The log stays the truth: a copy is rebuilt when it is missing or stale.

The copy of a batch is `<batch>/copy/`: one Parquet file for each view, and `index.json`, which is written last and says
what was copied. The results that `compare` reads are a copy of their own there, with `results.json`: they take a third
of the time to build. Files are named by a digest of their source, so that processes which build at once write the same
files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from evalloom.batchlog.columns import RESULTS, TABLES, VIEWS, BatchRow, Row, columns_of
from evalloom.batchlog.complete import checked_runs
from evalloom.batchlog.folders import is_in_use
from evalloom.batchlog.parquet import Place, path_pattern, quoted, replace_file, write_parquet
from evalloom.batchlog.read import MANIFEST, RUNS, VERDICTS, Damage, manifest
from evalloom.batchlog.results import result_rows
from evalloom.batchlog.rows import RowReader, batch_row
from evalloom.core.digest import digest_file, digest_text
from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Batch
from evalloom.data.formats import Formats

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FOLDER_NAME = "copy"
_FORMAT = 2
"""Incremented when the columns or their meaning change."""
_MTIME_RESOLUTION_NS = 50_000_000
"""A file modified more recently than this may change again without a new timestamp."""
_ABANDONED_S = 3600
"""Seconds after which an unlisted file counts as left behind by a killed process."""
_FILE_NAME = lazy_pattern(r"[a-z_]+-[0-9a-f]{16}\.parquet")
_LEAST_OBJECT = 16 * 1024**2


class Stamp(Struct, frozen=True):
    """The version of a file. The time is compared first, because a digest takes a second for a gigabyte."""

    size: int
    mtime_ns: int
    digest: str


class CopiedTable(Struct, frozen=True):
    """The Parquet file of one view."""

    file: str
    rows: int
    stamp: Stamp


class CopyIndex(Struct, frozen=True):
    """What a copy holds, and of which version of its sources."""

    format: str = ""
    sources: dict[str, Stamp] = {}
    tables: dict[str, CopiedTable] = {}
    damage: list[Damage] = []
    """The lines of the log that cannot be read and are left out, and what is missing."""


class Source(Struct, frozen=True):
    """A batch, or a file of results that is read like one."""

    batch: BatchRow
    path: Path
    """Its folder: lines that cannot be read are named by it, and its copy is inside it."""
    files: tuple[Path, ...]
    """The files that are copied; the copy is stale when one of them changes."""
    place: Path | None
    """The folder of its copy; None while it is being written, so that a copy is of no use afterwards."""
    rows: Callable[[list[Damage]], Iterator[tuple[str, Row]]]
    """Yields the rows, each with the name of its view, and adds the lines that cannot be read to the list."""
    reader: str = ""
    """A name of the code that reads the rows: a copy by another reader is stale."""
    is_listed: bool = True
    """Whether it is a row of the view `batches`."""
    tables: Collection[str] = tuple(VIEWS)
    """What is copied."""
    index: str = "index.json"
    """The name of the index."""


def batch_source(path: Path, formats: Formats, buckets: tuple[str, ...], system_of: Callable[[Batch], str]) -> Source:
    """Return a batch as a source of rows."""
    # Before the manifest is read: a batch that ends meanwhile counts as running, not as stopped.
    is_running = is_in_use(path)
    batch = manifest(path)
    status = "running" if is_running else "finished" if batch.finished_at else "stopped"

    def rows(damage: list[Damage]) -> Iterator[tuple[str, Row]]:
        reader = RowReader(batch, formats, buckets)
        for run, scored in checked_runs(path, damage):
            yield from reader.rows(run, scored)
        if not (path / MANIFEST).is_file():
            raise _removed(path)

    return Source(
        batch_row(batch, path.as_posix(), status, system_of(batch)),
        path,
        (path / RUNS, path / VERDICTS, path / MANIFEST),
        None if is_running else path.absolute() / FOLDER_NAME,
        rows,
        # A package that reads another dialect gives other inputs and expectations.
        ",".join(sorted(dialect.name for dialect in formats.dialects)),
    )


def result_source(path: Path) -> Source:
    """Return the results of the cases of a batch as a source of rows."""
    is_running = is_in_use(path)
    batch = manifest(path)

    def rows(damage: list[Damage]) -> Iterator[tuple[str, Row]]:
        yield from ((RESULTS, row) for row in result_rows(checked_runs(path, damage)))
        if not (path / MANIFEST).is_file():
            raise _removed(path)

    return Source(
        batch_row(batch, path.as_posix(), "", ""),
        path,
        (path / RUNS, path / VERDICTS, path / MANIFEST),
        None if is_running else path.absolute() / FOLDER_NAME,
        rows,
        tables=(RESULTS,),
        index="results.json",
    )


def _removed(path: Path) -> EvalloomError:
    return EvalloomError("no_batch", f"{path.as_posix()}: the batch was removed while it was read", exit_code=2)


class Copy:
    """The copy of one source; `refresh` builds it if necessary. Every file is written atomically."""

    def __init__(self, source: Source, connection: DuckDBPyConnection) -> None:
        """`connection` writes the files: a new one for each copy takes as long as a small copy."""
        self.source = source
        self._connection = connection
        self._place = Place(source.place, source.path)

    @property
    def place(self) -> Path:
        return self._place.path

    @property
    def _format(self) -> str:
        return f"{_FORMAT} {digest_text(self.source.reader, 8)}"

    def refresh(self) -> CopyIndex:
        """Return the index of a current copy."""
        return self.current() or self._build()

    def current(self) -> CopyIndex | None:
        """Return the index of the copy; None if it is missing or stale."""
        if self.source.place is None:
            return None
        index = self._read_index()
        current = index and self._restamped(index)
        if current is not None and current != index:
            with suppress(OSError):
                # Otherwise the digests are compared again the next time.
                self._write_index(current)
        return current

    def close(self) -> None:
        """Remove the copy if it is a temporary one."""
        self._place.close()

    # -- whether it is current -----------------------------------------------------------------------

    def _read_index(self) -> CopyIndex | None:
        try:
            index = msgspec.json.decode((self.place / self.source.index).read_bytes(), type=CopyIndex)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        # A name with a slash would be a file of somebody else.
        named = all(
            name in self.source.tables and _FILE_NAME.fullmatch(table.file) for name, table in index.tables.items()
        )
        return index if named and index.format == self._format else None

    def _restamped(self, index: CopyIndex) -> CopyIndex | None:
        """Return the index with the present times of its files; None if the content of one has changed."""
        sources = {}
        if index.sources.keys() != {path.name for path in self.source.files}:
            return None
        for path in self.source.files:
            stamp = _current(path, index.sources[path.name])
            if stamp is None:
                return None
            sources[path.name] = stamp
        tables = {}
        for name, table in index.tables.items():
            stamp = _current(self.place / table.file, table.stamp)
            if stamp is None:
                return None
            tables[name] = structs.replace(table, stamp=stamp)
        return structs.replace(index, sources=sources, tables=tables)

    def _write_index(self, index: CopyIndex) -> None:
        replace_file(self.place / self.source.index, msgspec.json.encode(index))

    # -- building ------------------------------------------------------------------------------------

    def _build(self) -> CopyIndex:
        import duckdb

        self._place.make_writable()
        try:
            return self._build_here()
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            if self._place.is_temporary:
                reason = (getattr(error, "strerror", None) or str(error).splitlines()[0]).lower()
                message = (
                    f"{self.place.as_posix()}: cannot be written: {reason}. Free disk space for a copy of the runs"
                )
                raise EvalloomError("cannot_write", message) from None
        # A full disk, or a folder that another process has removed.
        self._place.use_temporary()
        return self._build()

    def _build_here(self) -> CopyIndex:
        sources = {path.name: _stamp(path) for path in self.source.files}
        digest = digest_text(" ".join([self._format, *(stamp.digest for stamp in sources.values())]), 8)
        damage: list[Damage] = []
        tables = {}
        with RowWriter(self.place) as writer:
            for table, row in self.source.rows(damage):
                writer.write(table, row)
            for table, rows in writer.counts.items():
                path = self.place / f"{table}-{digest}.parquet"
                write_parquet(self._connection, writer.query(table), path)
                tables[table] = CopiedTable(path.name, rows, _stamp(path, is_ours=True))
        index = CopyIndex(self._format, sources, tables, damage)
        self._write_index(index)
        self._clean(index)
        return index

    def _clean(self, index: CopyIndex) -> None:
        """Delete what is replaced, and what killed processes left behind."""
        listed = {table.file for table in index.tables.values()}
        with suppress(OSError):
            for path in self.place.iterdir():
                is_abandoned = path.suffix == ".tmp" and time.time() - path.stat().st_mtime > _ABANDONED_S
                is_own = _FILE_NAME.fullmatch(path.name) and path.name.rpartition("-")[0] in self.source.tables
                if is_abandoned or (is_own and path.name not in listed):
                    path.unlink(missing_ok=True)


def _stamp(path: Path, is_ours: bool = False) -> Stamp:
    """Return the stamp of a file. The time of one that has just been changed is left out, unless we wrote it."""
    try:
        stat = path.stat()
        digest = digest_file(path)
    except FileNotFoundError:
        return Stamp(-1, 0, "")
    is_recent = not is_ours and abs(time.time_ns() - stat.st_mtime_ns) < _MTIME_RESOLUTION_NS
    return Stamp(stat.st_size, 0 if is_recent else stat.st_mtime_ns, digest)


def _current(path: Path, old: Stamp) -> Stamp | None:
    """Return the stamp of a file that has not changed, with its present time; None if it has."""
    try:
        stat = path.stat()
    except OSError:
        return old if old.size < 0 else None
    if stat.st_size != old.size:
        return None
    if stat.st_mtime_ns == old.mtime_ns:
        return old
    with suppress(OSError):
        new = _stamp(path)
        return new if new.digest == old.digest else None
    return None


class RowWriter:
    """Writes rows to temporary JSONL files, one for each view, from which DuckDB writes Parquet."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: dict[str, tuple[Path, IO[bytes]]] = {}
        self._stack = ExitStack()
        self._encode = msgspec.json.Encoder().encode
        self.counts: dict[str, int] = {}
        self._longest: dict[str, int] = {}

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        for path, _ in self._files.values():
            path.unlink(missing_ok=True)

    def write(self, table: str, row: Row) -> None:
        """Write one row of a view."""
        try:
            line = self._encode(row)
        except UnicodeEncodeError:  # lone surrogates in a file of another program
            texts = {name: getattr(row, name) for name in row.__struct_fields__ if isinstance(getattr(row, name), str)}
            row = structs.replace(row, **{name: text.encode(errors="replace").decode() for name, text in texts.items()})
            line = self._encode(row)
        if table not in self._files:
            path = self._place / f"{table}.{os.urandom(4).hex()}.tmp"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._files[table] = (path, self._stack.enter_context(os.fdopen(handle, "wb", 1 << 20)))
            self.counts[table] = self._longest[table] = 0
        stream = self._files[table][1]
        stream.write(line)
        stream.write(b"\n")
        self.counts[table] += 1
        if len(line) > self._longest[table]:
            self._longest[table] = len(line)

    def query(self, table: str) -> str:
        """Return the query for the rows of a view."""
        self._stack.close()
        columns = columns_of(TABLES[table])
        # All are declared: types guessed from the first lines may not fit the last.
        declared = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in columns.items())
        path = quoted(path_pattern(self._files[table][0]))
        largest = max(_LEAST_OBJECT, 2 * self._longest[table])
        lists = [name for name, kind in columns.items() if kind.endswith("[]")]
        filled = f"REPLACE ({', '.join(f'coalesce({name}, []) AS {name}' for name in lists)})" if lists else ""
        return f"""SELECT * {filled} FROM read_json({path}, format = 'newline_delimited', columns = {{{declared}}},
            maximum_object_size = {largest})"""
