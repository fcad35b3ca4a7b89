"""Compares the documents that two batches searched, and names the changed sources of a failing case."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec import Struct

from evalloom.core.model import UNREAD, Batch
from evalloom.core.ranking import is_hit

_LISTED = 3
_ALL = ""
"""The path that stands for all documents together, where there are very many."""


class DocumentChanges(Struct, frozen=True):
    """The paths of documents that differ between two batches; no paths at all if only a digest of them all differs."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Documents that are no longer readable."""

    def __str__(self) -> str:
        kinds = (
            ("changed", self.changed),
            ("added", self.added),
            ("removed", self.removed),
            ("no longer readable", self.unread),
        )
        parts = []
        for kind, paths in kinds:
            more = len(paths) - _LISTED
            listed = ", ".join(paths[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
            parts += [f"{len(paths):,} {kind} ({listed})"] if paths else []
        return f"documents: {', '.join(parts)}" if parts else "the documents changed"


def document_changes(base: Batch, now: Batch) -> DocumentChanges | None:
    """Return the changed documents; None if none changed, or if one batch does not list its documents."""
    before, after = base.documents, now.documents
    if not before or not after or before == after:
        return None
    if _ALL in before or _ALL in after:
        return DocumentChanges()
    # An unreadable document was not searched. An unreadable link to a folder hides every document below it.
    read_before, read_now = ({path for path, digest in side.items() if digest != UNREAD} for side in (before, after))
    unreadable = [path for path, digest in after.items() if digest == UNREAD]
    unread = {path for path in read_before - read_now if any(path == link or is_hit(link, path) for link in unreadable)}
    return DocumentChanges(
        tuple(sorted(path for path in read_before & read_now if before[path] != after[path])),
        tuple(sorted(read_now - read_before)),
        tuple(sorted(read_before - read_now - unread)),
        tuple(sorted(unread)),
    )


class ChangedSources:
    """Finds the changed documents among the expected sources of a case."""

    def __init__(self, changes: DocumentChanges) -> None:
        kinds = (
            ("changed since the baseline", changes.changed),
            ("was removed since the baseline", changes.removed),
            ("can no longer be read", changes.unread),
        )
        self._notes = [(path, f"{path} {change}") for change, paths in kinds for path in paths]
        # Many cases expect the same source, and each search goes through all changed documents.
        self._notes_of = cache(lambda source: [note for path, note in self._notes if is_hit(source, path)])

    def notes(self, expected: Iterable[str]) -> tuple[str, ...]:
        """Return a sentence for each changed source, and one for all after the first few."""
        notes = list(dict.fromkeys(note for source in expected for note in self._notes_of(source)))
        more = len(notes) - _LISTED
        return (*notes[:_LISTED], f"and {more:,} more of its sources changed") if more > 0 else tuple(notes)
