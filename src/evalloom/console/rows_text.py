"""The rows of a query as text: a table that fits the terminal, CSV, or JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from evalloom.console.layout import Line, Verbatim, cell_len, cut, terminal_width
from evalloom.core.text import printable

_GAP = 2
_LEAST = 8
"""A column is not cut to less; where even that is too wide, each row is a list of its values."""
_LONGEST = 60
"""A column gets no wider than this, so that one long text does not push the others off the screen."""
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")


def row_lines(names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Line]:
    """Yield a table; a long cell ends with `…`. With too many columns for the terminal, one value a line."""
    heads = [printable(name) for name in names]
    table = [[_cell(value) for value in row] for row in rows]
    width = terminal_width()
    widths = [min(max(map(cell_len, (head, *(row[at] for row in table)))), _LONGEST) for at, head in enumerate(heads)]
    room = width - _GAP * (len(widths) - 1)
    is_number = [kind.lstrip("U").startswith((*_NUMBERS, "BIG", "HUGE", "SMALL", "TINY")) for kind in types]
    # Numbers are never cut: part of one is another number.
    least = [size if number else min(size, _LEAST) for size, number in zip(widths, is_number, strict=True)]
    if sum(least) > room:
        yield from _record_lines(heads, table, width)
        return
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        widths[widest] -= 1
    for number, cells in enumerate([heads, *table]):
        padded = []
        for cell, size, right in zip(cells, widths, is_number, strict=True):
            shown = cut(cell, size)
            space = " " * (size - cell_len(shown))
            padded.append(space + shown if right else shown + space)
        yield Verbatim((" " * _GAP).join(padded).rstrip()), "" if number else "bold"


def _record_lines(heads: list[str], table: list[list[str]], width: int) -> Iterator[Line]:
    """Yield the values of each row, one a line."""
    indent = max(map(cell_len, heads)) + _GAP
    for number, cells in enumerate(table, 1):
        yield f"row {number}", "bold"
        for head, cell in zip(heads, cells, strict=True):
            yield Verbatim(f"{head}{' ' * (indent - cell_len(head))}{cut(cell, max(width - indent, _LEAST))}"), ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else printable(_text(value))


def csv_lines(names: Sequence[str], blocks: Iterable[Sequence[Sequence[Any]]]) -> Iterator[str]:
    """Yield CSV: a header, then the rows in blocks. NULL is an empty cell; lists and objects are JSON."""
    yield _csv([names])
    for block in blocks:
        yield _csv([["" if value is None else _text(value) for value in row] for row in block])


def _csv(rows: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def json_lines(
    names: Sequence[str], types: Sequence[str], blocks: Iterable[Sequence[Sequence[Any]]]
) -> Iterator[bytes]:
    """Yield one JSON object a row, in blocks of lines; columns of JSON are values, not texts."""
    names = _unique(names)
    is_json = [kind == "JSON" for kind in types]
    for block in blocks:
        lines = bytearray()
        for row in block:
            values = (
                msgspec.Raw(value.encode()) if own and value is not None else value
                for value, own in zip(row, is_json, strict=True)
            )
            lines += _encode(dict(zip(names, values, strict=True))) + b"\n"
        yield bytes(lines)


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names with a number behind those that are there already."""
    unique: list[str] = []
    for name in names:
        number = 1
        shown = name
        while shown in unique:
            number += 1
            shown = f"{name}_{number}"
        unique.append(shown)
    return unique


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _text(value: Any) -> str:
    """Return a value as text: numbers and times as DuckDB writes them, lists and objects as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return _encode(value).decode() if isinstance(value, list | dict | tuple) else str(value)
