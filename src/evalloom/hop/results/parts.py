"""What the derived copy of a folder is made of: parts, the files in them, and the stamps that tell a file."""

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
"""Counts up when the columns change or what they mean; a copy of another format is made anew."""
_SETTLED_NS = 50_000_000
"""A file written this shortly ago may be written again without its time changing, so its stamp proves nothing."""


class Stamp(Struct, frozen=True):
    """What tells that a file is still the one that was copied."""

    size: int
    mtime_ns: int


class Source(Struct, frozen=True):
    """One JSONL file inside a part, and what its lines are."""

    name: str
    stamp: Stamp
    first: int = 0
    """The place of its first line among the rows of the part."""
    results: int = 0
    metas: int = 0
    inputs: int = 0
    profiles: list[str | None] = []
    unreadable: int = 0
    faults: list[tuple[int, str]] = []
    """The first unreadable lines, each with the reason."""
    left_out: bool = False
    """Whether its rows in this part do not count, because another part has them read the exact way."""


class Part(Struct, frozen=True):
    """One Parquet file."""

    name: str
    way: str
    names: Names
    sources: list[Source]

    @property
    def exact(self) -> bool:
        return self.way == EXACT

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
        return sorted((one for part in self.parts for one in part.counted()), key=lambda source: source.name)


def read_records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """The objects of a file with their lines, and in between the reasons why there is none."""
    for item in RowReader(source_of(path)):
        if isinstance(item, Row):
            is_object = isinstance(item.value, dict)
            yield item.line, item.value if is_object else f"expected an object, got {type(item.value).__name__}"
        elif item.severity == "error":
            yield item.place.line, item.message


def stamps_of(folder: Path) -> dict[str, Stamp]:
    """The result files of a folder, sorted by name."""
    try:
        entries = [
            entry
            for entry in os.scandir(folder)
            if entry.name.endswith(".jsonl") and entry.name[0] != "." and entry.name != OBSERVER and entry.is_file()
        ]
        found = {entry.name: entry.stat() for entry in sorted(entries, key=lambda entry: entry.name)}
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("results_unreadable", f"{folder.as_posix()}: cannot be read: {reason}", 2) from None
    now = time.time_ns()
    return {name: Stamp(stat.st_size, _settled(stat.st_mtime_ns, now)) for name, stat in found.items()}


def _settled(mtime_ns: int, now: int) -> int:
    """When a file was last written; what is of this very moment is like nothing before."""
    return -secrets.randbits(62) if abs(now - mtime_ns) < _SETTLED_NS else mtime_ns
