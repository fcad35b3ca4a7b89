"""The derived copy of a folder of HOP result files: Parquet parts built from the JSONL files, and cached statistics.

A part holds all records of consecutive files in order. Parts and the index are written to temporary files and renamed,
the index last, so concurrent readers always see a consistent copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.batchlog.parquet import Place, connect, replace_file, write_parquet
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.hop.results.build import Builder, can_stay
from evalloom.hop.results.index import CopyIndex, Stamp, copy_format, stamps_of
from evalloom.hop.results.rows import canonical_text, same_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_INDEX, _STATS = "index.json", "stats.json"
_ABANDONED_S = 3600
"""Seconds after which an unlisted file counts as left behind by a killed process."""
_MAX_CACHED = 50
"""The maximum number of cached statistics."""


class CachedStats(Struct, frozen=True):
    """The answers computed from a set of parts, by query."""

    parts: list[str]
    answers: dict[str, msgspec.Raw] = {}


class Copy:
    """The copy of one folder; `refresh` updates it. Every file is written atomically."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self._warn = warn
        self._place = Place(folder / ".evalloom" / "hop-store", folder)
        self._warned: set[tuple[str, int, str]] = set()

    @property
    def place(self) -> Path:
        """The folder of the copy: beside the files, or a temporary folder if that is not writable."""
        return self._place.path

    def refresh(self) -> CopyIndex:
        """Update the copy to the current files, and return its index."""
        stamps = stamps_of(self.folder)
        index = self._read_index()
        if {source.name: source.stamp for source in index.sources()} != stamps:
            index = self._build(index, stamps)
        for source in index.sources():
            for line, reason in source.line_errors:
                if (source.name, line, reason) not in self._warned:
                    self._warned.add((source.name, line, reason))
                    path = (self.folder / source.name).as_posix()
                    where = f"{path}:{line}" if line else path
                    self._warn(f"{where}: skipped: {reason} [unreadable_result_line]")
        return index

    def forget(self) -> None:
        """Delete a damaged copy; it can be rebuilt from the files."""
        for path in self.place.glob("*"):
            if path.suffix in (".json", ".parquet"):
                with suppress(OSError):
                    path.unlink()

    @contextmanager
    def connection(self) -> Iterator[DuckDBPyConnection]:
        """Open a DuckDB connection for one query, with a memory limit."""
        connection = connect(self.place)
        try:
            connection.create_function("same_json", same_json, ["VARCHAR", "VARCHAR"], "BOOLEAN")
            connection.create_function("canonical_text", canonical_text, ["VARCHAR"], "VARCHAR")
            yield connection
        finally:
            connection.close()

    def write_parquet(self, connection: DuckDBPyConnection, query: str, name: str) -> None:
        """Write the result of a query to a Parquet file of the copy, atomically."""
        write_parquet(connection, query, self.place / name)

    def write_json(self, name: str, value: Struct) -> None:
        """Write a JSON file of the copy, atomically."""
        replace_file(self.place / name, msgspec.json.encode(value))

    # -- cached statistics -----------------------------------------------------------------------

    def cached_stats(self, index: CopyIndex, query: str) -> Record | None:
        """Return the statistics that a query gave for the same parts."""
        cached = self._read_stats(index).answers.get(query)
        return None if cached is None else msgspec.json.decode(cached)

    def cache_stats(self, index: CopyIndex, query: str, answer: Record) -> None:
        """Cache the statistics of a query, until a file changes."""
        encoded = msgspec.json.encode(answer)
        if msgspec.json.decode(encoded) != answer:
            return  # JSON cannot represent infinite numbers.
        stats = self._read_stats(index)
        answers = dict(list(stats.answers.items())[-_MAX_CACHED + 1 :]) | {query: msgspec.Raw(encoded)}
        with suppress(OSError):
            # If the disk is full, the statistics are computed again next time.
            self.write_json(_STATS, CachedStats(stats.parts, answers))

    def _read_stats(self, index: CopyIndex) -> CachedStats:
        # A part is named by a hash of its files' stamps, so the names tell whether a file has changed.
        parts = sorted(part.name for part in index.parts)
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            cached = msgspec.json.decode((self.place / _STATS).read_bytes(), type=CachedStats)
            if cached.parts == parts:
                return cached
        return CachedStats(parts)

    # -- building --------------------------------------------------------------------------------

    def _read_index(self) -> CopyIndex:
        try:
            index = msgspec.json.decode((self.place / _INDEX).read_bytes(), type=CopyIndex)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return CopyIndex()
        is_complete = index.format == copy_format() and all((self.place / part.name).is_file() for part in index.parts)
        return index if is_complete else CopyIndex()

    def _build(self, old: CopyIndex, stamps: dict[str, Stamp]) -> CopyIndex:
        import duckdb

        self._place.make_writable()
        try:
            return self._build_here(old, stamps)
        except (OSError, duckdb.IOException) as error:
            if self._place.is_temporary:
                reason = str(error).splitlines()[0]
                message = (
                    f"{self.place.as_posix()}: cannot be written: {reason}. Free disk space for a copy of the results"
                )
                raise EvalloomError("cannot_write", message) from None
        self._place.use_temporary()
        return self._build(CopyIndex(), stamps)

    def _build_here(self, old: CopyIndex, stamps: dict[str, Stamp]) -> CopyIndex:
        """Keep the valid parts, and build new parts for all other files."""
        unchanged = [part for part in old.parts if can_stay(part, stamps)]
        current = {source.name for part in unchanged for source in part.sources}
        by_python = {
            source.name
            for part in old.parts
            for source in part.sources
            if part.by_python and stamps.get(source.name) == source.stamp
        }
        with self.connection() as connection:
            added = Builder(self, connection, stamps).build(stamps.keys() - current, by_python - current)
        index = CopyIndex(copy_format(), unchanged + added)
        self.write_json(_INDEX, index)
        self._clean(old, index)
        return index

    def _clean(self, old: CopyIndex, new: CopyIndex) -> None:
        """Delete replaced parts, and files left behind by killed processes and earlier versions.

        Another process may be about to add an unlisted part to the index, so unlisted parts are kept for a while.
        """
        current = {_stem(part.name) for part in new.parts} | {_stem(_INDEX), _stem(_STATS)}
        replaced = {_stem(part.name) for part in old.parts} - current
        for path in self.place.iterdir():
            with suppress(OSError):
                is_ours = path.suffix in (".tmp", ".parquet", ".json") and _stem(path.name) not in current
                if is_ours and (_stem(path.name) in replaced or time.time() - path.stat().st_mtime > _ABANDONED_S):
                    path.unlink()


def _stem(name: str) -> str:
    return name.split(".")[0]
