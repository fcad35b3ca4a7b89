"""The index of the derived copy of a folder: parts, their source files, and file stamps."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.hop.results.rows import EXACT, Names

OBSERVER = "observer.jsonl"
FORMAT = 2
"""Incremented when the columns or their meaning change; a copy of another format is rebuilt."""
_SETTLED_NS = 50_000_000
"""A file modified more recently than this may change again within the same timestamp."""


class Stamp(Struct, frozen=True):
    """Identifies the version of a file that was copied."""

    size: int
    mtime_ns: int


# `rename` keeps the keys of index.json, so that copies made by earlier versions stay valid.
class Source(Struct, frozen=True, rename={"line_errors": "faults"}):
    """A JSONL file inside a part, with counts of its lines."""

    name: str
    stamp: Stamp
    first: int = 0
    """The row number of its first line in the part."""
    results: int = 0
    metas: int = 0
    inputs: int = 0
    profiles: list[str | None] = []
    unreadable: int = 0
    line_errors: list[tuple[int, str]] = []
    """The first unreadable lines, each with the reason."""
    left_out: bool = False
    """Whether its rows in this part are ignored, because another part has them from the exact strategy."""


class Part(Struct, frozen=True, rename={"strategy": "way"}):
    """One Parquet file."""

    name: str
    strategy: str
    names: Names
    sources: list[Source]

    @property
    def exact(self) -> bool:
        return self.strategy == EXACT

    @property
    def size(self) -> int:
        return sum(source.stamp.size for source in self.sources)

    def counted(self) -> list[Source]:
        return [source for source in self.sources if not source.left_out]


class Index(Struct, frozen=True):
    """All parts of a copy."""

    format: int = FORMAT
    parts: list[Part] = []

    def sources(self) -> list[Source]:
        return sorted((source for part in self.parts for source in part.counted()), key=lambda source: source.name)


def read_records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """Yield the lines of a file with their objects, or the reason why a line is unreadable."""
    for item in RowReader(source_of(path)):
        if isinstance(item, Row):
            is_object = isinstance(item.value, dict)
            yield item.line, item.value if is_object else f"expected an object, got {type(item.value).__name__}"
        elif item.severity == "error":
            yield item.place.line, item.message


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
    now = time.time_ns()
    return {name: Stamp(stat.st_size, _settled(stat.st_mtime_ns, now)) for name, stat in stats.items()}


def _settled(mtime_ns: int, now: int) -> int:
    """Return the modification time of a file; a unique value if it was modified just now."""
    return -secrets.randbits(62) if abs(now - mtime_ns) < _SETTLED_NS else mtime_ns
