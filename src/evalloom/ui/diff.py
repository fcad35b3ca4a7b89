"""Differences of two texts, line by line, for pages that show what changed."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal, NamedTuple


class DiffLine(NamedTuple):
    """A line of one text or of both, with its line break if it has one."""

    kind: Literal["same", "removed", "added"]
    text: str


def diff_lines(before: str, after: str) -> Iterator[DiffLine]:
    """Yield the lines of both texts in order; where they differ, the removed lines come before the added ones."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    # Without autojunk, a line that occurs often is compared like any other.
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (DiffLine("same", line) for line in old[i1:i2])
        else:
            yield from (DiffLine("removed", line) for line in old[i1:i2])
            yield from (DiffLine("added", line) for line in new[j1:j2])
