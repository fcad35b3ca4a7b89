"""Reads CSV and TSV tables: one object per row, keyed by the header, each cell as text."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from evalloom.core.model import Path, Place
from evalloom.core.text import quote
from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row, not_utf8

_DELIMITERS = ",;\t|"
_REASONS = {
    "new-line character": "a carriage return alone does not end a row. Save the file with the line ends LF or CRLF",
    "unexpected end": "a cell in double quotes is not closed. Close it with '\"'",
    "expected after": "text follows the closing '\"' of a cell. Inside a cell in quotes, write '\"\"' for a quote",
}
"""What to do about an error of the csv module, by a part of its message, which is meant for programmers."""


class CsvReader:
    """Iterates over the rows and problems of one table; `lines` counts the lines read so far."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.lines = 0
        self._numbered = _numbered(chunks)
        self._unread: deque[tuple[int, bytes]] = deque()
        self._row_lines: list[tuple[int, bytes]] = []
        """The lines of the current row."""
        self._problems: list[Problem] = []

    def __iter__(self) -> Iterator[Row | Problem]:
        csv.field_size_limit(MAX_RECORD_BYTES)
        first = next((line for line in self._text_lines() if line.strip()), "")
        delimiter = max(_DELIMITERS, key=first.count)
        self._put_back(self._row_lines[-1:] if first else [])
        header: list[str] = []
        while (cells := self._next_row(delimiter)) is not None:
            is_broken = any(problem.severity == "error" for problem in self._problems)
            yield from self._problems
            line = self._row_lines[0][0]
            if not header:
                names = [name.strip() for name in cells]
                header = [name or f"_column{number}" for number, name in enumerate(names, 1)]
                yield from _header_problems(names, line)
                if not header:
                    return
            elif is_broken:
                continue
            elif any(cells):
                yield from _row(header, cells, line, _Cells(self._row_lines, header, delimiter))
            elif cells:
                yield Problem(
                    "blank_row", "info", "every cell of this row is empty, so it is not a case", Place(line, 1)
                )
        yield from self._problems

    def _next_row(self, delimiter: str) -> list[str] | None:
        """Return the cells of the next row, an empty list if it is broken, None at the end."""
        self._row_lines, self._problems = [], []
        try:
            # A new csv.reader for each row: one that has raised an error does not continue.
            return next(csv.reader(self._text_lines(), delimiter=delimiter, strict=True), None)
        except csv.Error as error:
            self._put_back(self._row_lines[1:])
            place = Place(self._row_lines[0][0], 1)
            reason = next((reason for part, reason in _REASONS.items() if part in str(error)), str(error))
            self._problems.append(Problem("csv_parse_error", "error", f"is not CSV: {reason}", place))
            return []

    def _put_back(self, lines: list[tuple[int, bytes]]) -> None:
        """Read these lines again: an unclosed quote swallows the lines after it, but only its own line is broken."""
        if lines:
            self._unread.extendleft(reversed(lines))
            self._problems = [problem for problem in self._problems if problem.place.line < lines[0][0]]

    def _text_lines(self) -> Iterator[str]:
        while (numbered := self._unread.popleft() if self._unread else next(self._numbered, None)) is not None:
            number, line = numbered
            self.lines = max(self.lines, number)
            if len(line) > MAX_RECORD_BYTES:
                limit = MAX_RECORD_BYTES // (1024 * 1024)
                message = f"a line of more than {limit} MiB is not read"
                self._problems.append(Problem("line_too_long", "error", message, Place(number, 1)))
                line = b"\n"
            self._row_lines.append(numbered)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                self._problems.append(not_utf8(line, error, Place(number, 1)))
                text = line.decode("utf-8", "replace")
            yield text


def _row(header: list[str], cells: list[str], line: int, places: Mapping[Path, Place]) -> Iterator[Row | Problem]:
    if len(cells) > len(header):
        message = (
            f"expected {len(header)} cells as in the header, got {len(cells)}: {quote(cells[len(header)])} has no"
            " column. A cell with the delimiter in it needs double quotes"
        )
        yield Problem("ragged_row", "error", message, Place(line, 1))
        return
    if len(cells) < len(header):
        message = (
            f"expected {len(header)} cells as in the header, got {len(cells)}: {quote(header[len(cells)])} is missing"
        )
        yield Problem("ragged_row", "warning", message, Place(line, 1))
    yield Row(dict(zip(header, cells, strict=False)), line, 1, b"", places)


def _header_problems(names: list[str], line: int) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if not name:
            message = f"column {number + 1} has no name; it is read as '_column{number + 1}'"
            yield Problem("blank_column", "info", message, Place(line, 1))
        elif name in seen:
            message = f"column {number + 1}: {quote(name)} is already the name of another column; the last one counts"
            yield Problem("duplicate_key", "warning", message, Place(line, 1))
        seen.add(name)


class _Cells(Mapping[Path, Place]):
    """The position of each cell of one row, computed when a finding needs it."""

    def __init__(self, lines: list[tuple[int, bytes]], header: list[str], delimiter: str) -> None:
        self._lines = lines
        self._header = header
        self._delimiter = delimiter

    def __getitem__(self, path: Path) -> Place:
        if len(path) != 1 or path[0] not in self._header:
            raise KeyError(path)
        number = len(self._header) - 1 - self._header[::-1].index(str(path[0]))
        return self._starts()[number]

    def __iter__(self) -> Iterator[Path]:
        return iter([(name,) for name in self._header])

    def __len__(self) -> int:
        return len(self._header)

    def _starts(self) -> list[Place]:
        starts = [Place(self._lines[0][0], 1)]
        at_start, has_quotes, inside = True, False, False
        for number, line in self._lines:
            for column, char in enumerate(line.decode(), 1):
                # In a cell that does not begin with a quote, a quote is an ordinary character.
                if char == '"' and (at_start or has_quotes):
                    has_quotes, inside = True, not inside
                at_start = char == self._delimiter and not inside
                if at_start:
                    has_quotes = False
                    starts.append(Place(number, column + 1))
        return starts + starts[:1] * (len(self._header) - len(starts))


def _numbered(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text with their numbers; a line that is too long is cut off after the limit."""
    number, pieces, size = 1, list[bytes](), 0
    for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield number, b"".join((*pieces, line, b"\n"))
            number, pieces, size = number + 1, [], 0
        if rest and size <= MAX_RECORD_BYTES:
            pieces.append(rest)
            size += len(rest)
    if pieces:
        yield number, b"".join(pieces)
