"""What every reader yields: rows of JSON values with their places, and problems in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core.model import Path, Place, Severity
from evalloom.files import jsontext

MAX_RECORD_BYTES = 32 * 1024 * 1024
"""A longer line or record is refused: no test case is that large, and memory stays bounded."""


_WHOLE_FILE = Place()


class Problem(NamedTuple):
    """What is wrong with the file itself, at its place."""

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
"""Stands for bytes that are no text in the encoding of the file. It is no UTF-8, so the record around it is refused."""


def not_utf8(text: bytes, fault: UnicodeDecodeError, start: Place) -> Problem:
    """What to say about bytes that are no text, in a record that begins at `start`."""
    before = text[: fault.start].decode("utf-8", "replace")
    place = jsontext.offset_place(before, len(before), *start)
    if text.startswith(NO_TEXT, fault.start):
        message = "holds bytes here that are no text in its encoding. Repair them, or name another --encoding"
        return Problem("wrong_encoding", "error", message, place)
    shown = text[fault.start : fault.start + 4]
    message = f"is not UTF-8 here: got the bytes {shown!r}. Save the file as UTF-8, or name its --encoding"
    return Problem("not_utf8", "error", message, place)


class Lines(NamedTuple):
    """Rows that stand one to a line with nothing odd about any of them; handed on together, because it is fast."""

    values: list[Any]
    line: int
    texts: list[bytes]

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Some of the lines, or all of them, as single rows."""
        for number, value in enumerate(self.values[start:stop], start):
            yield Row(value, self.line + number, 1, self.texts[number])


class Row(Struct, gc=False):
    """One value as read. `text` is its JSON source; readers of other layouts give `places` instead."""

    value: Any
    line: int
    column: int = 1
    text: bytes = b""
    places: Mapping[Path, Place] | None = None
    file: str = ""

    def place_of(self, path: Path) -> Place:
        """Where `path` stands in the file; the nearest thing that exists when it does not."""
        if self.places is None:
            self.places = jsontext.all_places(self.text, self.line, self.column)
        for length in range(len(path), 0, -1):
            if (found := self.places.get(path[:length])) is not None:
                return found
        return Place(self.line, self.column)


def one_by_one(items: Iterable[Row | Problem | Lines]) -> Iterator[Row | Problem]:
    """The same items with every block of lines taken apart."""
    for item in items:
        if isinstance(item, Lines):
            yield from item.rows()
        else:
            yield item
