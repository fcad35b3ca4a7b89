"""Markdown that cannot be broken by what is shown in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalloom.core.text import shorten
from evalloom.ui.text import as_text, visible

_LONGEST = 300
"""A cell with more is cut: the whole text stands in the JSON file and in the HTML report."""


def table_of(heads: Sequence[str], align: str, rows: Iterable[Sequence[object]]) -> str:
    """A table; `align` has a letter for each column: `r` for numbers."""
    rules = "|".join("---:" if one == "r" else "---" for one in align)
    lines = [_line(heads), f"|{rules}|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(text_of(as_text(cell)) for cell in cells)} |"


def text_of(text: str) -> str:
    """Text that stays on its line and in its cell, and is shown as it is."""
    text = shorten(visible(" ".join(text.split())), _LONGEST)
    for mark in "\\`*_[]<>|&~$#":
        text = text.replace(mark, f"\\{mark}")
    return text
