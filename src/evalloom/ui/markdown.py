"""Markdown tables and texts, escaped so that no text breaks the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalloom.core.text import shorten
from evalloom.ui.text import as_text, visible

_LONGEST = 300
"""Longer cells are shortened; the JSON file and the HTML report have the whole text."""


def markdown_table(heads: Sequence[str], align: str, rows: Iterable[Sequence[object]]) -> str:
    """Format a table; `align` has a letter for each column: `r` for numbers."""
    rules = "|".join("---:" if letter == "r" else "---" for letter in align)
    lines = [_line(heads), f"|{rules}|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(escape_markdown(as_text(cell)) for cell in cells)} |"


def escape_markdown(text: str) -> str:
    """Escape a text so that it stays on its line and in its cell, and is shown unchanged."""
    text = shorten(visible(" ".join(text.split())), _LONGEST)
    for mark in "\\`*_[]<>|&~$#":
        text = text.replace(mark, f"\\{mark}")
    return text
