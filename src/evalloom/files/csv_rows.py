"""CSV and TSV tables as rows: one object per row, keyed by the header, every cell as the text it is."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row, refused
from evalloom.model import Path, Place, quote

_DELIMITERS = ",;\t|"


class CsvReader:
    """Rows and problems of one table; `lines` counts the lines read so far."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.lines = 0
        self._bytes_lines = _lines(chunks)
        self._row_text: list[str] = []
        self._problems: list[Problem] = []

    def __iter__(self) -> Iterator[Row | Problem]:
        lines = self._text_lines()
        first = next((line for line in lines if line.strip()), "")
        delimiter = max(_DELIMITERS, key=first.count)
        csv.field_size_limit(MAX_RECORD_BYTES)
        table = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
        header: list[str] = []
        while first:
            line = self.lines + 1 if header else self.lines
            if header:
                self._row_text = []
            try:
                cells = next(table, None)
            except csv.Error as fault:
                self._problems.append(Problem("csv_parse_error", "error", f"is not CSV: {fault}", Place(line, 1)))
                cells = []
            yield from self._problems
            self._problems.clear()
            if cells is None:
                return
            if not header:
                names = [name.strip() for name in cells]
                header = [name or f"_column{number}" for number, name in enumerate(names, 1)]
                yield from _header_problems(names, line)
            elif any(cells):
                yield from _row(header, cells, line, _Cells("".join(self._row_text), header, delimiter, line))
            elif cells:
                yield Problem("blank_row", "info", "every cell of this row is empty; it is no case", Place(line, 1))
        yield from self._problems

    def _text_lines(self) -> Iterator[str]:
        for line in self._bytes_lines:
            self.lines += 1
            try:
                text = line.decode()
            except UnicodeDecodeError as fault:
                column = len(line[: fault.start].decode("utf-8", "replace")) + 1
                shown = line[fault.start : fault.start + 4]
                message = f"is not UTF-8 here: got the bytes {shown!r}. Save the file as UTF-8, or name its --encoding"
                self._problems.append(Problem("not_utf8", "error", message, Place(self.lines, column)))
                continue
            self._row_text.append(text)
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
    for number, name in enumerate(names):
        if not name:
            message = f"column {number + 1} has no name; it is read as '_column{number + 1}'"
            yield Problem("blank_column", "info", message, Place(line, 1))
        elif name in names[:number]:
            message = f"the column {quote(name)} stands twice in the header; the last one counts"
            yield Problem("duplicate_key", "warning", message, Place(line, 1))


class _Cells(Mapping[Path, Place]):
    """The place of each cell of one row, worked out only when a finding asks for it."""

    def __init__(self, text: str, header: list[str], delimiter: str, line: int) -> None:
        self._text = text
        self._header = header
        self._delimiter = delimiter
        self._line = line

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
        line, column, quoted = self._line, 1, False
        starts = [Place(line, column)]
        for char in self._text:
            column += 1
            if char == '"':
                quoted = not quoted
            elif char == "\n":
                line, column = line + 1, 1
            elif char == self._delimiter and not quoted:
                starts.append(Place(line, column))
        missing = len(self._header) - len(starts)
        return starts + [Place(self._line, 1)] * missing


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > MAX_RECORD_BYTES:
            raise refused("line_too_long", f"a line of more than {MAX_RECORD_BYTES:,} bytes is not read")
    if rest:
        yield rest


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
