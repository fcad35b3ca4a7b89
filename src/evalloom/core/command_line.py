"""The command line of this process, which a batch stores so that it can be resumed with the same flags."""

from __future__ import annotations

from collections.abc import Sequence

_words: list[str] = []


def remember(words: Sequence[str]) -> None:
    """Set the command line, beginning with the name of the command."""
    _words[:] = words


def words() -> list[str]:
    """Return the command line; empty if this process is not a command of evalloom."""
    return list(_words)
