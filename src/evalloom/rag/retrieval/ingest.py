"""Updates the store from the files: reads only what changed, and commits in steps that survive interruption."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time_ns

from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.rag.retrieval.chunks import chunks
from evalloom.rag.retrieval.folder import FileStamp, FolderScan, open_document, stamp_of, suffix_of
from evalloom.rag.retrieval.readers import LARGEST, UnreadableDocument, read
from evalloom.rag.retrieval.store import OWN_REPORT, DocumentStore
from evalloom.rag.retrieval.words import words
from evalloom.ui.report_marks import is_ours

Progress = Callable[[int, int, str], None]
"""Called with the number done, the total, and the next document (empty when there is none)."""

_STEP_S = 2.0
"""Most seconds of work that an interruption may lose."""
_JUST_NOW_NS = 100_000_000
"""A file changed this recently may change again with the same mtime, because file clocks are coarse."""
_NO_STAMP = FileStamp(-1, -1, -1, -1)
"""Equals no real stamp, so that the file is read again next time."""


class IndexOptions(Struct, frozen=True):
    """How documents are split: the maximum characters of a chunk, and how many of them the next one repeats."""

    chunk: int = 800
    overlap: int = 100


def quiet(done: int, total: int, path: str) -> None:
    """Ignore progress."""


def bring_up_to_date(
    store: DocumentStore, root: Path, scan: FolderScan, options: IndexOptions, progress: Progress
) -> None:
    """Add new and changed documents to the store, and remove deleted ones."""
    stored = store.document_states()
    refused = {document.path: document.reason for document in scan.unread if document.path not in scan.stamps}
    gone = stored.keys() - scan.stamps.keys() - refused.keys()
    unread = [path for path, reason in refused.items() if path not in stored or stored[path][2] != reason]
    changed = sorted(path for path, stamp in scan.stamps.items() if path not in stored or stored[path][0] != stamp)
    if not gone and not unread and not changed and store.is_complete:
        return
    base = os.path.realpath(root)
    store.begin()
    for path in gone:
        store.remove(path)
    for path in unread:
        store.put_unread(path, _NO_STAMP, "", refused[path])
    since = monotonic()
    for done, path in enumerate(changed):
        progress(done, len(changed), path)
        _ingest(store, base, path, stored.get(path), options)
        if monotonic() - since > _STEP_S:
            store.commit()
            store.begin()
            since = monotonic()
    progress(len(changed), len(changed), "")
    store.commit(is_complete=True)


def _ingest(
    store: DocumentStore, base: str, path: str, stored: tuple[FileStamp, str, str] | None, options: IndexOptions
) -> None:
    """Read a file, and store it when its content changed."""
    now = time_ns()
    try:
        with open_document(base, path) as stream:
            stamp = stamp_of(os.fstat(stream.fileno()))
            content = stream.read(LARGEST + 1)
    except UnreadableDocument as error:
        store.put_unread(path, _NO_STAMP, "", str(error))
        return
    except OSError as error:
        store.put_unread(path, _NO_STAMP, "", f"cannot be opened: {(error.strerror or str(error)).lower()}")
        return
    if max(stamp.mtime_ns, stamp.ctime_ns) >= now - _JUST_NOW_NS:
        stamp = _NO_STAMP
    digest = digest_bytes(content)
    if stored is not None and stored[1:] == (digest, ""):
        store.update_stamp(path, stamp)
        return
    if is_ours(content):
        # A report quotes the queries of missed cases, and would match each of them.
        store.put_unread(path, stamp, digest, OWN_REPORT)
        return
    try:
        document = read(suffix_of(path), content)
    except UnreadableDocument as error:
        store.put_unread(path, _NO_STAMP if error.may_change else stamp, digest, str(error))
        return
    cut = chunks(document, options.chunk, options.overlap)
    counted = ((chunk, words(f"{chunk.heading}\n{chunk.text}")) for chunk in cut if chunk.text.strip())
    store.put(path, stamp, digest, [(chunk, terms) for chunk, terms in counted if terms])
