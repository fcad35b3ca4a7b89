"""Prints sentences, commands and tables within the width of the terminal.

The width is COLUMNS, else that of the terminal, else 80. Text that is too long continues on the next line, so a pipe
loses nothing. rich.cells measures characters (Chinese ones take two cells); the layout is here because rich.table and
rich.console take 30 ms to import, twice the start of Python, and crop numbers when a table is too wide.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat, zip_longest
from shutil import get_terminal_size

import click

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import printable

Line = tuple[str, str]
"""A line to print, and its style on a terminal, such as `bold red`."""

_NARROW = dict.fromkeys(map(ord, "–—·…→×"), "-")
"""The signs of our own messages that are not ASCII and take one cell."""
_GAP = 2
_NARROWEST = 40
_SMALL_COLUMN = 9
_SMALLEST_COLUMN = 6
_SMALLEST_PREVIEW = 24
_NUMBER = lazy_pattern(r"(?:[\d.,%+\-–?:\s]|e[+-]|to|ms|s)*")
_WIDE = "\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
_CLOSING = "、。，．）」』】》！？：；"
# A line may break behind spaces and between Chinese characters, but not before closing punctuation.
_SPACE_BREAK = r"(?<= )(?=\S)"
_WIDE_BREAK = rf"(?<=[{_WIDE}])(?![ {_CLOSING}])|(?=[{_WIDE}])(?![{_CLOSING}])"
# A cell has less room, so paths and names may also break at their separators.
_SEPARATOR_BREAK = r"(?<=[/_,:])(?=\S)|(?<=\w-)(?=\w)|(?<=\S)(?=\.[a-z]|@)"
# Compiling the ranges of wide characters takes 5 ms, so ASCII text has patterns of its own.
_BREAKS = {
    "sentence": (lazy_pattern(_SPACE_BREAK), lazy_pattern(f"{_SPACE_BREAK}|{_WIDE_BREAK}")),
    "cell": (
        lazy_pattern(f"{_SPACE_BREAK}|{_SEPARATOR_BREAK}"),
        lazy_pattern(f"{_SPACE_BREAK}|{_WIDE_BREAK}|{_SEPARATOR_BREAK}"),
    ),
}

_NO_BREAK = "\u00a0"
"""A space of a command inside a sentence. No other text has one: `printable` escapes it."""


class Verbatim(str):
    """Text of the user, such as a prompt, a diff or JSON, that is printed without line breaks of ours."""


def cell_len(text: str) -> int:
    """Return the number of cells that a text takes on a terminal."""
    if text.translate(_NARROW).isascii():
        return len(text)
    from rich.cells import cell_len as count_cells  # deferred: most tables need no more than the line above

    return count_cells(text)


def terminal_width() -> int:
    """Return the number of columns to use."""
    return max(_NARROWEST, get_terminal_size((80, 24)).columns)


def has_colour(to_stderr: bool = False) -> bool:
    """Whether a stream is a terminal that may show colours."""
    stream = sys.stderr if to_stderr else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_lines(lines: Iterable[Line], hide: Callable[[str], str] = str, to_stderr: bool = False) -> None:
    """Print lines, wrapped at the width of the terminal, in colour on a terminal; `hide` removes secrets."""
    width, in_colour = terminal_width(), has_colour(to_stderr)
    for text, style in lines:
        # Before wrapping: a secret on two lines would not be recognised.
        shown = hide(text)
        for line in [shown] if isinstance(text, Verbatim) else wrap_line(shown, width):
            line = line.replace(_NO_BREAK, " ")
            click.echo(_styled(line, style) if in_colour and style and line else line, err=to_stderr)


def _styled(line: str, style: str) -> str:
    words = set(style.split())
    colour = next(iter(words - {"bold", "dim"}), None)
    return click.style(line, fg=colour, bold="bold" in words or None, dim="dim" in words or None)


def wrap_line(text: str, width: int) -> list[str]:
    """Break a sentence at spaces; the lines that follow are indented by two more than the first."""
    if cell_len(text) <= width:
        return [text]
    indent = len(text) - len(text.lstrip())
    # A sentence that begins with a label, such as `target    prompt.md`, continues below its text.
    label = re.match(r"\s*\S+\s{2,}", text)
    hanging = label.end() if label and label.end() <= width // 3 else min(indent + 2, width // 3)
    first, *rest = _wrap(text[indent:], width - indent, width - hanging, is_cell=False)
    return [" " * indent + first, *(" " * hanging + line for line in rest)]


def _parts(text: str, breaks: str) -> list[str]:
    """Split a text where it may break: in a `sentence`, or in a `cell`."""
    ascii_pattern, pattern = _BREAKS[breaks]
    return (ascii_pattern if text.isascii() else pattern).split(text)


def _wrap(text: str, first: int, width: int, is_cell: bool) -> list[str]:
    """Break text into lines, the first of `first` cells. A longer word sticks out; in a cell it is broken."""
    from rich.cells import chop_cells

    lines: list[str] = []
    line, used, room = "", 0, first
    parts: Iterable[str] = _parts(text, "sentence")
    if is_cell:
        # A word that fits on a line stays whole, such as the code of a message.
        parts = (
            piece for part in parts for piece in ([part] if cell_len(part.rstrip()) <= width else _parts(part, "cell"))
        )
    for part in filter(None, parts):
        if line and used + cell_len(part.rstrip()) > room:
            lines.append(line.rstrip())
            line, used, room = "", 0, width
        if is_cell and cell_len(part.rstrip()) > room:
            *full, part = chop_cells(part.rstrip(), room)
            lines += full
        line += part
        used += cell_len(part)
    return [*lines, line.rstrip()]


def unbroken(command: str) -> str:
    """Return a command that stays on one line where the sentence around it is wrapped."""
    return command.replace(" ", _NO_BREAK)


def command_lines(command: str, prefix: str = "") -> Iterator[Line]:
    """Yield a command to type; one that is too long is continued with backslashes, so that it can be pasted."""
    width = terminal_width()
    line = f"{prefix}{command}"
    if cell_len(line) <= width:
        yield line, ""
        return
    indent = " " * (len(prefix) - len(prefix.lstrip()) + 4)
    # Break before flags only: a quoted argument with spaces stays in one piece.
    first, *flags = re.split(r" (?=--?[A-Za-z])", command)
    line = f"{prefix}{first}"
    for flag in flags:
        if cell_len(f"{line} {flag} \\") > width:
            yield Verbatim(f"{line} \\"), ""
            line = f"{indent}{flag}"
        else:
            line += f" {flag}"
    yield Verbatim(line), ""


def table_lines(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Iterable[str] = (),
    indent: int = 0,
    preview: str = "",
) -> Iterator[Line]:
    """Yield a table without rules that fits the terminal; numbers are aligned right.

    A header of empty names is left out. `styles` are those of the rows. The column `preview` shows the beginning of a
    longer text, as much as fits on one line.
    """
    heads = [printable(cell) for cell in header]
    table = [[printable(cell) for cell in row] for row in rows]
    columns = [[row[at] for row in table] for at in range(len(heads))]
    # The first column names the row, and a name may be a number.
    is_number = [at > 0 and all(map(_NUMBER.fullmatch, cells)) for at, cells in enumerate(columns)]
    width = terminal_width() - indent
    if preview:
        at = heads.index(preview)
        others = sum(max(map(cell_len, (head, *cells))) + _GAP for head, cells in zip(heads, columns, strict=True))
        room = width - others + max(map(cell_len, (preview, *columns[at]))) + _GAP
        for row in table:
            row[at] = cut(row[at], max(room, _SMALLEST_PREVIEW))
        columns[at] = [row[at] for row in table]
    widths = [max(map(cell_len, (head, *cells))) for head, cells in zip(heads, columns, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > width:
        widths = _fit(heads, columns, is_number, width)
    lines = [(heads, "bold")] if any(heads) else []
    lines += zip(table, chain(styles, repeat("")), strict=False)
    for cells, style in lines:
        wrapped = [
            [cell] if cell_len(cell) <= width else _wrap(cell, width, width, is_cell=True)
            for cell, width in zip(cells, widths, strict=True)
        ]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = [_pad(*cell) for cell in zip(parts, widths, is_number, strict=True)]
            yield Verbatim((" " * indent + (" " * _GAP).join(padded)).rstrip()), style


def _fit(heads: Sequence[str], columns: Sequence[Sequence[str]], is_number: Sequence[bool], width: int) -> list[int]:
    """Return the widths of the columns of a table that is too wide: the widest ones get narrower until all fit."""

    def longest_part(cells: Iterable[str], breaks: str) -> int:
        return max((cell_len(part.rstrip()) for cell in cells for part in _parts(cell, breaks)), default=0)

    widths = []
    # The least widths, from harmless to ugly: a header over several lines, cells broken at spaces, names broken at
    # separators, words broken anywhere, words in small pieces, and at last numbers broken.
    needs: list[list[int]] = [[], [], [], [], [], [1] * len(heads)]
    for at, (head, cells, number) in enumerate(zip(heads, columns, is_number, strict=True)):
        whole = max(map(cell_len, cells), default=0)
        spaces, separators = (
            max(longest_part([head], "sentence"), whole if number or not at else longest_part(cells, breaks))
            for breaks in ("sentence", "cell")
        )
        # A name in the first column is copied into the next command, so it is not broken.
        folded = min(separators, _SMALL_COLUMN) if at else separators
        if number:
            is_interval = any(" to " in cell for cell in cells)
            folded = max(folded, longest_part(cells, "sentence") if is_interval else whole)
        pieces = min(folded, _SMALLEST_COLUMN) if at and not number else folded
        widths.append(max(cell_len(head), whole))
        for column_needs, need in zip(needs, (max(spaces, whole), spaces, separators, folded, pieces), strict=False):
            column_needs.append(need)
    gaps = _GAP * (len(widths) - 1)
    if sum(needs[4]) + gaps > width:
        # Small pieces would not save the names in the first column.
        del needs[4]
    excess = sum(widths) + gaps - width
    for least in needs:
        while excess > 0 and any(now > low for now, low in zip(widths, least, strict=True)):
            widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            widths[widest] -= 1
            excess -= 1
    return widths


def _pad(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_right else text + space


def cut(text: str, width: int) -> str:
    """Cut text to `width` cells."""
    from rich.cells import set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def seconds(value: float | None) -> str:
    """Format a duration: `1.23 s`, `45 ms`."""
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms" if value >= 1e-6 else "0 ms"


def percent_interval(low: float | None, high: float | None) -> str:
    """Format an interval of shares: `37.6–96.4%`."""
    return "-" if low is None or high is None else f"{100 * low:.1f}–{high:.1%}"
