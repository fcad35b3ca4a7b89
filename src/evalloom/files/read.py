"""Reads the rows of a source in any layout: JSON, CSV or YAML."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING

from evalloom.core.lazy import lazy_pattern
from evalloom.files.json_rows import JsonReader
from evalloom.files.rows import Problem, Refused, Row
from evalloom.files.source import Source, read_chunks

if TYPE_CHECKING:
    from evalloom.files.csv_rows import CsvReader
    from evalloom.files.yaml_rows import YamlReader

    _Reader = JsonReader | CsvReader | YamlReader

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = (".csv", ".tsv")
YAML_SUFFIXES = (".yaml", ".yml")
_YAML_START = lazy_pattern(rb"\s*(---|- |[\w\"'-]+:(\s|$))")


class RowReader:
    """Iterates over the rows and problems of one source; `lines` and `layout` are set while it reads."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layout = ""
        self._reader: _Reader | None = None
        self._lines = 0

    @property
    def lines(self) -> int:
        return self._reader.lines if self._reader else self._lines

    def __iter__(self) -> Iterator[Row | Problem]:
        if self.source.suffix in YAML_SUFFIXES and (stamp := _stamp(self.source)):
            yield from self._yaml(stamp)
        else:
            yield from self._read()

    def _yaml(self, stamp: tuple[object, ...]) -> Iterator[Row | Problem]:
        """Read YAML, which is read as a whole and slowly; the last file is kept for the next reading of it."""
        if stamp not in _last_yaml:
            read = list(self._read())
            _last_yaml.clear()
            _last_yaml[stamp] = (read, self.layout, self.lines)
        items, self.layout, self._lines = _last_yaml[stamp]
        # Copies, because what reads the rows changes them.
        yield from (copy(item) if isinstance(item, Row) else item for item in items)

    def _read(self) -> Iterator[Row | Problem]:
        chunks = read_chunks(self.source)
        try:
            head = next(chunks, b"")
            self.layout = _layout(self.source.suffix, head)
            self._reader = _reader(self.layout, chain((head,), chunks))
            yield from self._reader
        except Refused as error:
            yield error.problem


_last_yaml: dict[tuple[object, ...], tuple[list[Row | Problem], str, int]] = {}


def _stamp(source: Source) -> tuple[object, ...]:
    """Return what a file of the same content has; empty for what is no file."""
    if source.path is None or source.content is not None:
        return ()
    try:
        state = os.stat(source.path)
    except (OSError, ValueError):
        return ()
    return (source, state.st_mtime_ns, state.st_size, state.st_ino) if stat.S_ISREG(state.st_mode) else ()


def _layout(suffix: str, head: bytes) -> str:
    """Return the layout by extension, or by the first characters if the extension is unknown."""
    if suffix in CSV_SUFFIXES:
        return "csv"
    if suffix in YAML_SUFFIXES:
        return "yaml"
    start = head.lstrip()
    if suffix in JSON_SUFFIXES or start[:1] in (b"{", b"[") or start.startswith(b"//"):
        return "json"
    if _YAML_START.match(start):
        return "yaml"
    return "csv" if any(mark in start.split(b"\n")[0] for mark in (b",", b"\t", b";")) else "json"


def _reader(layout: str, chunks: Iterable[bytes]) -> _Reader:
    if layout == "yaml":
        # Imported here: yaml takes longer to import than most files take to read.
        from evalloom.files.yaml_rows import YamlReader

        return YamlReader(chunks)
    if layout == "csv":
        from evalloom.files.csv_rows import CsvReader

        return CsvReader(chunks)
    return JsonReader(chunks)
