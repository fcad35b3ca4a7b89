"""The index of the derived copy of a folder: its parts, their source files, and file stamps."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.digest import sha256_hex
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.hop.results.rows import FieldNames

OBSERVER = "observer.jsonl"
_FORMAT = 4
"""Incremented when the columns or their meaning change."""
_MTIME_RESOLUTION_NS = 50_000_000
"""A file modified more recently than this may change again without a new timestamp."""


def copy_format() -> str:
    """Return the format of the copies that this process writes; a copy of another format is rebuilt."""
    import duckdb

    # The copy has hashes of DuckDB, which another version may compute differently.
    return f"{_FORMAT}, DuckDB {duckdb.__version__}"


class Stamp(Struct, frozen=True):
    """Identifies the version of a file that was copied."""

    size: int
    mtime_ns: int


class SourceFile(Struct, frozen=True):
    """A JSONL file inside a part, with counts of its lines."""

    name: str
    stamp: Stamp
    first: int = 0
    """The row number of its first record in the part."""
    results: int = 0
    metas: int = 0
    inputs: int = 0
    profiles: list[str | None] = []
    unreadable: int = 0
    line_errors: list[tuple[int, str]] = []
    """The first unreadable lines, each with the reason."""


class ParquetPart(Struct, frozen=True):
    """One Parquet file, with all records of its source files in order."""

    name: str
    names: FieldNames
    sources: list[SourceFile]
    by_python: bool = False
    """Whether Python read the files; SQL did otherwise."""

    @property
    def size(self) -> int:
        return sum(source.stamp.size for source in self.sources)

    def records(self, folder: Path, source: SourceFile) -> Iterator[tuple[int, Record | None]]:
        """Yield the line number and the object of each row of a source."""
        if not self.by_python:
            return _duckdb_rows(folder / source.name)
        return ((line, record) for line, record in read_records(folder / source.name) if isinstance(record, dict))


def named_part(sources: list[SourceFile], names: FieldNames, by_python: bool = False) -> ParquetPart:
    """Return a part named by a hash of its contents, so that concurrent processes build the same part."""
    digest = sha256_hex(msgspec.json.encode([copy_format(), by_python, names, sources]))
    return ParquetPart(f"{digest[:20]}.parquet", names, sources, by_python)


class CopyIndex(Struct, frozen=True):
    """All parts of a copy."""

    format: str = ""
    parts: list[ParquetPart] = []

    def sources(self) -> list[SourceFile]:
        return sorted((source for part in self.parts for source in part.sources), key=lambda source: source.name)


def read_records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """Yield the lines of a file with their objects, or the reason why a line is unreadable."""
    for item in RowReader(source_of(path)):
        if isinstance(item, Row):
            is_object = isinstance(item.value, dict)
            yield item.line, item.value if is_object else f"expected an object, got {type(item.value).__name__}"
        elif item.severity == "error":
            yield item.place.line, item.message


def _duckdb_rows(path: Path) -> Iterator[tuple[int, Record | None]]:
    """Yield the lines that are not blank, as DuckDB counts rows; None for a line that is not an object."""
    with suppress(FileNotFoundError), path.open("rb") as stream:
        for line, text in enumerate(stream, 1):
            if text.isspace():
                continue
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                value = None
                with suppress(ValueError, RecursionError):
                    # Python writes NaN, and DuckDB reads it.
                    value = json.loads(text)
            yield line, value if isinstance(value, dict) else None


def stamps_of(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of the result files of a folder, sorted by name."""
    try:
        entries = [
            entry
            for entry in os.scandir(folder)
            if entry.name.endswith(".jsonl") and entry.name[0] != "." and entry.name != OBSERVER and entry.is_file()
        ]
        stats = {entry.name: entry.stat() for entry in sorted(entries, key=lambda entry: entry.name)}
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("results_unreadable", f"{folder.as_posix()}: cannot be read: {reason}", 2) from None
    for name in stats:
        # os.fsdecode keeps bytes that are not UTF-8 as surrogates, which neither the index nor DuckDB can hold.
        if not name.isascii() and name.encode(errors="replace").decode() != name:
            message = f"{folder.as_posix()}: the file name {name!r} is not UTF-8. Rename the file"
            raise EvalloomError("results_unreadable", message, 2)
    now = time.time_ns()
    # A random stamp never matches, so the next query reads a file again that was modified just now.
    return {
        name: Stamp(
            stat.st_size,
            -secrets.randbits(62) if abs(now - stat.st_mtime_ns) < _MTIME_RESOLUTION_NS else stat.st_mtime_ns,
        )
        for name, stat in stats.items()
    }
