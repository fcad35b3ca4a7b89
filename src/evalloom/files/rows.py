"""What every reader yields: rows of JSON values with their places, and problems in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.files import jsontext
from evalloom.model import Path, Place, Severity

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
            return jsontext.locate(self.text, path, self.line, self.column)
        for length in range(len(path), 0, -1):
            if (found := self.places.get(path[:length])) is not None:
                return found
        return Place(self.line, self.column)
