"""The items that every reader yields: rows of JSON values with their positions, and problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import orjson
from msgspec import Struct

from evalloom.core.model import Path, Place, Severity
from evalloom.files import jsontext

MAX_RECORD_BYTES = 32 * 1024 * 1024
"""The limit for one line or record: no test case is larger, and memory stays bounded."""


_WHOLE_FILE = Place()


class Problem(Struct, frozen=True):
    """An error, warning or note about the file itself, with its position."""

    code: str
    severity: Severity
    message: str
    place: Place = _WHOLE_FILE
    file: str = ""
    """Set when the problem is in a file that the source includes."""


class Refused(Exception):
    """The rest of this file cannot be read, for the reason in `problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def refused(code: str, message: str, place: Place = _WHOLE_FILE) -> Refused:
    return Refused(Problem(code, "error", message, place))


NO_TEXT = b"\xff\xfe\xff"
"""Replaces bytes that the encoding of the file cannot decode. It is not UTF-8, so the record around it is refused."""


def not_utf8(text: bytes, error: UnicodeDecodeError, start: Place) -> Problem:
    """Return the problem of a record that begins at `start` and is not UTF-8."""
    before = text[: error.start].decode("utf-8", "replace")
    place = jsontext.offset_place(before, len(before), *start)
    if text.startswith(NO_TEXT, error.start):
        message = "contains bytes here that are not text in its encoding. Repair them, or pass another --encoding"
        return Problem("wrong_encoding", "error", message, place)
    shown = text[error.start : error.start + 4]
    message = f"is not UTF-8 here: got the bytes {shown!r}. Save the file as UTF-8, or pass its --encoding"
    return Problem("not_utf8", "error", message, place)


class Lines(Struct, frozen=True):
    """A block of rows, one per line, that need no closer look; passed on together, because that is fast."""

    values: list[Any]
    line: int
    texts: list[bytes]

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the lines from `start` to `stop` as single rows."""
        for number, value in enumerate(self.values[start:stop], start):
            yield Row(value, self.line + number, 1, self.texts[number])


class Recognized(Struct, frozen=True):
    """A block of lines, one record per line, whose shape tells all but some columns of their JSON; not decoded."""

    shape: Any
    columns: Mapping[str, Sequence[str]]
    line: int
    text: bytes
    count: int

    def decoded(self) -> Lines:
        texts = self.text.split(b"\n")[:-1]
        return Lines(list(map(orjson.loads, texts)), self.line, texts)


class Row(Struct, gc=False):
    """One value and its position. `text` is its JSON source; readers of other layouts set `places` instead."""

    value: Any
    line: int
    column: int = 1
    text: bytes = b""
    places: Mapping[Path, Place] | None = None
    file: str = ""

    def place_of(self, path: Path) -> Place:
        """Return the position of `path`, or of its nearest parent that exists."""
        if self.places is None:
            self.places = jsontext.all_places(self.text, self.line, self.column)
        for length in range(len(path), 0, -1):
            if (place := self.places.get(path[:length])) is not None:
                return place
        return Place(self.line, self.column)


Item = Row | Problem | Lines | Recognized


class Recognizer(Protocol):
    """Recognizes lines that need not be decoded."""

    wait: int
    """The number of lines to decode before the next try."""

    def recognize(self, block: bytes, line: int) -> Recognized | None:
        """Return lines at the start of a block whose first line is `line`; None if they must be decoded."""
        ...


def split_blocks(items: Iterable[Item]) -> Iterator[Row | Problem]:
    """Yield the items with each block of lines split into rows."""
    for item in items:
        if isinstance(item, Lines):
            yield from item.rows()
        elif isinstance(item, Recognized):
            yield from item.decoded().rows()
        else:
            yield item
