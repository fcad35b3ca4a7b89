"""Prints sentences, commands and tables within the width of the terminal.

The width is COLUMNS, else that of the terminal, else 80. A sentence that is too long continues on the next line. A
table that is too wide breaks headers and prose at spaces, cuts names in the middle, leaves out the columns that its
caller can spare, and continues in a second table below; it never breaks a number. rich.cells measures characters
(Chinese ones take two cells); the layout is here because rich.table and rich.console take 30 ms to import, twice the
start of Python, and crop numbers when a table is too wide.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat, zip_longest

import click

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import printable

Line = tuple[str, str]
"""A line to print, and its style on a terminal, such as `bold red`."""

_NARROW = dict.fromkeys(map(ord, "–—·…→×−"), "-")
"""The signs of our own messages that are not ASCII and take one cell."""
_GAP = 2
_USUAL_WIDTH = 80
_NARROWEST = 40
_READABLE_NAME = 28
"""The cells that are enough to tell the names in the first column apart."""
_READABLE = 14
"""The cells that are enough to recognise the text in another column; more columns are left out before it gets less."""
_SMALLEST = 8
_SMALLEST_PREVIEW = 24
_WIDE_COLUMN = 24
"""A column of this width breaks a long path at its separators. In a narrower one that takes too many lines."""
_NUMBER = lazy_pattern(r"(?:[\d.,%+\-–−?:\sTZ±]|e[+-]|p =|to|points|ms|s)*")
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
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        # Not `shutil.get_terminal_size`, which does the same: shutil imports every compression that there is.
        with suppress(AttributeError, OSError, ValueError):  # no stdout, or no terminal
            width = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    return max(_NARROWEST, width or _USUAL_WIDTH)


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


def plain_text(lines: Iterable[Line]) -> str:
    """Return lines as one text, wrapped at the width of the terminal, without colours."""
    width = terminal_width()
    wrapped = (line for text, _ in lines for line in wrap_line(text, width))
    return "\n".join(wrapped).replace(_NO_BREAK, " ")


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
            from rich.cells import chop_cells  # deferred: few words are longer than a cell is wide

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


class _Column:
    """One column of a table, with the cells of all rows, and how wide it can be."""

    def __init__(self, head: str, cells: list[str], is_first: bool, is_preview: bool, is_whole: bool) -> None:
        self.head = head
        self.cells = cells
        # The first column names the row, and a name may be a number.
        self.is_number = not is_first and all(map(_NUMBER.fullmatch, cells))
        self._is_first = is_first
        self._is_preview = is_preview
        widest = max(map(cell_len, cells), default=0)
        part = max((cell_len(part.rstrip()) for part in _parts(head, "cell")), default=0)
        broken_head = readable = least = max(part, widest)
        if not (self.is_number or is_whole):
            enough = _SMALLEST_PREVIEW if is_preview else _READABLE_NAME if is_first else _READABLE
            readable = max(part, min(widest, enough))
            broken_head = readable if is_preview else broken_head
            least = max(part, min(widest, _READABLE if is_first else _SMALLEST))
        self.widths = (max(cell_len(head), widest), broken_head, readable, least)
        """With everything on one line; with the header on several; still readable; the least."""

    def head_lines(self, width: int) -> list[str]:
        return [self.head] if cell_len(self.head) <= width else _wrap(self.head, width, width, is_cell=True)

    def cell_lines(self, cell: str, width: int) -> list[str]:
        """Return a cell as lines of at most `width` cells."""
        if cell_len(cell) <= width:
            return [cell]
        if self._is_preview:
            return [cut(cell, width)]
        if self._is_first:
            return [_cut_middle(cell, width)]
        if width < _WIDE_COLUMN:
            cell = "".join(_cut_middle(part, width) for part in _parts(cell, "sentence"))
        return _wrap(cell, width, width, is_cell=True)


_READABLE_STAGE, _LEAST_STAGE = 2, 3


def table_lines(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Iterable[str] = (),
    indent: int = 0,
    preview: str = "",
    spare: Collection[str] = (),
    whole: Collection[str] = (),
    second: str = "",
) -> Iterator[Line]:
    """Yield a table without rules that fits the terminal; numbers are aligned right and never broken.

    A header of empty names is left out. `styles` are those of the rows. The column `preview` shows the beginning of a
    longer text, as much as fits on one line. `spare` names the columns that may be left out of a table that is too
    wide, the least important first; the last line then names them. Other columns continue in a second table, from the
    column `second` on. The columns `whole` hold what is copied into the next command, such as ids: they are not cut.
    """
    heads = [printable(cell) for cell in header]
    table = [[printable(cell) for cell in row] for row in rows]
    columns = [
        _Column(head, [row[at] for row in table], at == 0, bool(preview) and head == preview, head in whole)
        for at, head in enumerate(heads)
    ]
    width = terminal_width() - indent
    row_styles = list(styles)
    left_out = []
    for name in map(printable, spare):
        if _total(columns, _READABLE_STAGE) <= width:
            break
        left_out += [column.head for column in columns if column.head == name]
        columns = [column for column in columns if column.head != name]
    for number, block in enumerate(_blocks(columns, width, second)):
        if number:
            yield "", ""
        for text, style in _block_lines(block, _fit(block, width), row_styles):
            yield Verbatim(" " * indent + text), style
    if left_out:
        yield f"{' ' * indent}Not shown, for lack of width: {', '.join(left_out)}", "dim"


def _total(columns: Sequence[_Column], stage: int) -> int:
    return sum(column.widths[stage] for column in columns) + _GAP * (len(columns) - 1)


def _blocks(columns: Sequence[_Column], width: int, second: str) -> Iterator[Sequence[_Column]]:
    """Yield the columns of each table: one if all fit, otherwise several that begin with the names of the rows."""
    if _total(columns, _LEAST_STAGE) <= width or not any(column.head for column in columns):
        yield columns
        return
    first, *rest = columns
    block = [first]
    for column in rest:
        is_full = _total([*block, column], _LEAST_STAGE) > width
        if len(block) > 1 and (is_full or column.head == second):
            yield block
            block = [first]
        block.append(column)
    yield block


def _fit(columns: Sequence[_Column], width: int) -> list[int]:
    """Return the widths of columns: the widest get narrower until all fit, first headers, then texts."""
    widths = [column.widths[0] for column in columns]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    for stage in (1, _READABLE_STAGE, _LEAST_STAGE):
        least = [column.widths[stage] for column in columns]
        while excess > 0 and any(now > low for now, low in zip(widths, least, strict=True)):
            widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            widths[widest] -= 1
            excess -= 1
    return widths


def _block_lines(columns: Sequence[_Column], widths: Sequence[int], styles: Iterable[str]) -> Iterator[Line]:
    if any(column.head for column in columns):
        heads = [column.head_lines(width) for column, width in zip(columns, widths, strict=True)]
        yield from ((line, "bold") for line in _aligned(heads, widths, columns))
    rows = zip(*(column.cells for column in columns), strict=True)
    for row, style in zip(rows, chain(styles, repeat("")), strict=False):
        cells = [column.cell_lines(cell, width) for column, cell, width in zip(columns, row, widths, strict=True)]
        yield from ((line, style) for line in _aligned(cells, widths, columns))


def _aligned(cells: Iterable[list[str]], widths: Sequence[int], columns: Sequence[_Column]) -> Iterator[str]:
    for parts in zip_longest(*cells, fillvalue=""):
        padded = [
            _pad(text, width, column.is_number) for text, width, column in zip(parts, widths, columns, strict=True)
        ]
        yield (" " * _GAP).join(padded).rstrip()


def _pad(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_right else text + space


def cut(text: str, width: int) -> str:
    """Cut text to `width` cells."""
    from rich.cells import set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _cut_middle(text: str, width: int) -> str:
    """Cut a name to `width` cells: its beginning, `…` and its end, where names of files differ."""
    from rich.cells import set_cell_size

    trimmed = text.rstrip()
    if cell_len(trimmed) <= width:
        return text
    end, tail = "", (width - 1) // 2
    for char in reversed(trimmed):
        if cell_len(char + end) > tail:
            break
        end = char + end
    return f"{set_cell_size(trimmed, width - 1 - cell_len(end)).rstrip()}…{end}{text[len(trimmed) :]}"


def seconds(value: float | None) -> str:
    """Format a duration: `1.23 s`, `45 ms`."""
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms" if value >= 1e-6 else "0 ms"


def percent_interval(low: float | None, high: float | None) -> str:
    """Format an interval of shares: `37.6–96.4%`."""
    return "-" if low is None or high is None else f"{100 * low:.1f}–{high:.1%}"
