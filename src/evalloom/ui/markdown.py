"""Markdown tables and texts, escaped so that no text breaks the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import shorten
from evalloom.ui.text import as_text, visible

_PUNCTUATION = lazy_pattern(r"[!-/:-@\[-`{-~]")
_LONGEST = 300
"""Longer cells are shortened; the JSON file and the HTML report have the whole text."""


class Markdown(str):
    """A text that is Markdown already, such as `code(…)`: a table does not escape it."""

    __slots__ = ()


def markdown_table(heads: Sequence[str], align: str, rows: Iterable[Sequence[object]]) -> str:
    """Format a table; `align` has a letter for each column: `r` for numbers."""
    rules = "|".join("---:" if letter == "r" else "---" for letter in align)
    lines = [_line(heads), f"|{rules}|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(cell: object) -> str:
    return cell if isinstance(cell, Markdown) else escape_markdown(as_text(cell))


def escape_markdown(text: str) -> str:
    """Escape a text so that it stays on its line and in its cell, and is shown unchanged."""
    text = shorten(visible(" ".join(text.split())), _LONGEST)
    for mark in "\\`*_[]<>|&~$#":
        text = text.replace(mark, f"\\{mark}")
    return text


def code(text: str, limit: int = _LONGEST) -> Markdown:
    """Format a text of a user or a model as code, on one line: nothing in it is markup, a mention or a link.

    GitHub turns `@name`, `#12` and addresses into links everywhere else, also where they are escaped.
    """
    text = shorten(visible(" ".join(text.split())), limit)
    if not text:
        return Markdown("")
    # A code span cannot hold a backtick of its own in all places, and a pipe would end the cell.
    if "`" not in text and "|" not in text:
        return Markdown(f"`{text}`")
    return Markdown(f"<code>{_PUNCTUATION.sub(lambda match: f'&#{ord(match[0])};', text)}</code>")
