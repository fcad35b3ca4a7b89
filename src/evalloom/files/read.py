"""One door to every layout: the rows of a source, whatever it is written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from evalloom.core.lazy import lazy_pattern
from evalloom.files.csv_rows import CsvReader
from evalloom.files.json_rows import JsonReader
from evalloom.files.rows import Problem, Refused, Row
from evalloom.files.source import Source, read_chunks

if TYPE_CHECKING:
    from evalloom.files.yaml_rows import YamlReader

    _Reader = JsonReader | CsvReader | YamlReader

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = (".csv", ".tsv")
YAML_SUFFIXES = (".yaml", ".yml")
_YAML_START = lazy_pattern(rb"\s*(---|- |[\w\"'-]+:(\s|$))")


def _yaml(chunks: Iterable[bytes]) -> YamlReader:
    # Deferred: yaml takes longer to import than most files take to read.
    from evalloom.files.yaml_rows import YamlReader

    return YamlReader(chunks)


_READERS: dict[str, Callable[[Iterable[bytes]], _Reader]] = {"csv": CsvReader, "yaml": _yaml, "json": JsonReader}


class RowReader:
    """Iterates over the rows and problems of one source; `lines` and `layout` are known as it goes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layout = ""
        self._reader: _Reader | None = None

    @property
    def lines(self) -> int:
        return self._reader.lines if self._reader else 0

    def __iter__(self) -> Iterator[Row | Problem]:
        chunks = read_chunks(self.source)
        try:
            head = next(chunks, b"")
            self.layout = _layout(self.source.suffix, head)
            reader = _READERS[self.layout](_chain(head, chunks))
            self._reader = reader
            yield from reader
        except Refused as fault:
            yield fault.problem


def _layout(suffix: str, head: bytes) -> str:
    """The layout by extension, and by the first characters where the extension does not tell."""
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


def _chain(head: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from chunks
