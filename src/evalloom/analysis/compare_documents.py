"""What was searched, before and now: which documents changed, and which of them a lost case was to find."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec import Struct

from evalloom.core.model import UNREAD, Batch
from evalloom.core.ranking import is_hit

_NAMED = 3
_ALL = ""
"""The path that stands for all documents together, where there are very many."""


class DocumentChanges(Struct, frozen=True):
    """The documents that are not what they were, by path. Without any name, only that something changed is known."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Those that could be read before, and cannot now."""

    def __str__(self) -> str:
        kinds = (
            ("changed", self.changed),
            ("added", self.added),
            ("removed", self.removed),
            ("no longer readable", self.unread),
        )
        parts = [f"{len(paths):,} {kind} ({_named(paths)})" for kind, paths in kinds if paths]
        return f"documents: {', '.join(parts)}" if parts else "the documents changed"


def document_changes(base: Batch, now: Batch) -> DocumentChanges | None:
    """What became of the documents; nothing where they are the same, or are not known on one side."""
    before, after = base.documents, now.documents
    if not before or not after or before == after:
        return None
    if _ALL in before or _ALL in after:
        return DocumentChanges()
    # What could not be read on a side was not searched there: of a link to a folder all that was below it.
    read_before, read_now = ({path for path, digest in side.items() if digest != UNREAD} for side in (before, after))
    closed = [path for path, digest in after.items() if digest == UNREAD]
    unread = {path for path in read_before - read_now if any(path == one or is_hit(one, path) for one in closed)}
    return DocumentChanges(
        tuple(sorted(path for path in read_before & read_now if before[path] != after[path])),
        tuple(sorted(read_now - read_before)),
        tuple(sorted(read_before - read_now - unread)),
        tuple(sorted(unread)),
    )


class Suspects:
    """Says of a case which of the documents that it should find are not what they were."""

    def __init__(self, changes: DocumentChanges) -> None:
        turns = (
            ("changed since the baseline", changes.changed),
            ("was removed since the baseline", changes.removed),
            ("can no longer be read", changes.unread),
        )
        self._turns = [(path, turn) for turn, paths in turns for path in paths]
        # Many cases expect the same source, and each look goes through every document that changed.
        self._found = cache(self._look)

    def notes(self, expected: Iterable[str]) -> tuple[str, ...]:
        """A sentence for each such document, and one for those beyond the first few."""
        found = list(dict.fromkeys(note for source in expected for note in self._found(source)))
        more = len(found) - _NAMED
        return (*found[:_NAMED], f"and {more:,} more of its sources changed") if more > 0 else tuple(found)

    def _look(self, source: str) -> list[str]:
        return [f"{path} {turn}" for path, turn in self._turns if is_hit(source, path)]


def _named(paths: tuple[str, ...]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(paths[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
