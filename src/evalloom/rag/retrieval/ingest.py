"""Updates the store from the files: reads only what changed, and commits in steps that survive interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from time import monotonic, time_ns

from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.engine.processes import Processes, most_processes
from evalloom.rag.retrieval.chunks import Chunk, chunks
from evalloom.rag.retrieval.folder import FileStamp, FolderScan, open_document, stamp_of, suffix_of
from evalloom.rag.retrieval.readers import LARGEST, UnreadableDocument, read
from evalloom.rag.retrieval.store import OWN_REPORT, DocumentStore
from evalloom.rag.retrieval.words import CountedWords, counted_words
from evalloom.ui.report_marks import is_ours

Progress = Callable[[int, int, str], None]
"""Called with the number done, the total, and the next document (empty when there is none)."""

_WORTH_IT = 4 * 1024 * 1024
"""The bytes of files that are worth several processes."""
_GROUP_BYTES = 512 * 1024
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
    processes = _processes(base, scan, changed, stored, options)
    try:
        store.begin()
        for path in gone:
            store.remove(path)
        for path in unread:
            store.put_unread(path, _NO_STAMP, "", refused[path])
        since = monotonic()
        progress(0, len(changed), changed[0] if changed else "")
        for done, (path, content) in enumerate(_contents(changed, scan, processes), 1):
            _store(store, path, content or _read(base, path, stored.get(path), options))
            if monotonic() - since > _STEP_S:
                store.commit()
                store.begin()
                since = monotonic()
            progress(done, len(changed), changed[done] if done < len(changed) else "")
    finally:
        if processes is not None:
            processes.close()
    store.commit(is_complete=True)


class _Content(Struct, frozen=True):
    """What a file holds; `chunks` is None if it cannot be read, for the `reason`, or is as stored."""

    stamp: FileStamp
    digest: str = ""
    reason: str = ""
    chunks: list[tuple[Chunk, CountedWords]] | None = None


def _processes(
    base: str,
    scan: FolderScan,
    changed: list[str],
    stored: dict[str, tuple[FileStamp, str, str]],
    options: IndexOptions,
) -> Processes[list[str], list[_Content]] | None:
    """Return processes that read files; None if one process is as good."""
    if sum(scan.stamps[path].size for path in changed) < _WORTH_IT or (number := most_processes()) < 2:
        return None
    import rjieba  # noqa: F401  # its dictionary is loaded once, and not in each process

    try:
        return Processes(number, lambda group: [_read(base, path, stored.get(path), options) for path in group])
    except (OSError, NotImplementedError):
        return None


def _contents(
    paths: list[str], scan: FolderScan, processes: Processes[list[str], list[_Content]] | None
) -> Iterator[tuple[str, _Content | None]]:
    """Yield the paths in order, with what other processes have read; None if this one has to read it."""
    if processes is None:
        yield from ((path, None) for path in paths)
        return
    for group, contents in processes.map(_groups(paths, scan)):
        yield from zip(group, contents or repeat(None), strict=False)


def _groups(paths: list[str], scan: FolderScan) -> Iterator[list[str]]:
    """Group files for one message to another process: each message has to wait for this process."""
    group, size = list[str](), 0
    for path in paths:
        group.append(path)
        size += scan.stamps[path].size
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _read(base: str, path: str, stored: tuple[FileStamp, str, str] | None, options: IndexOptions) -> _Content:
    """Read a file, and count the words of its chunks when its content changed."""
    now = time_ns()
    try:
        with open_document(base, path) as stream:
            stamp = stamp_of(os.fstat(stream.fileno()))
            content = stream.read(LARGEST + 1)
    except UnreadableDocument as error:
        return _Content(_NO_STAMP, reason=str(error))
    except OSError as error:
        return _Content(_NO_STAMP, reason=f"cannot be opened: {(error.strerror or str(error)).lower()}")
    if max(stamp.mtime_ns, stamp.ctime_ns) >= now - _JUST_NOW_NS:
        stamp = _NO_STAMP
    digest = digest_bytes(content)
    if stored is not None and stored[1:] == (digest, ""):
        return _Content(stamp, digest)
    if is_ours(content):
        # A report quotes the queries of missed cases, and would match each of them.
        return _Content(stamp, digest, OWN_REPORT)
    try:
        document = read(suffix_of(path), content)
    except UnreadableDocument as error:
        return _Content(_NO_STAMP if error.may_change else stamp, digest, str(error))
    cut = chunks(document, options.chunk, options.overlap)
    counted = ((chunk, counted_words(f"{chunk.heading}\n{chunk.text}")) for chunk in cut if chunk.text.strip())
    return _Content(stamp, digest, chunks=[(chunk, counts) for chunk, counts in counted if counts.text])


def _store(store: DocumentStore, path: str, content: _Content) -> None:
    if content.reason:
        store.put_unread(path, content.stamp, content.digest, content.reason)
    elif content.chunks is None:
        store.update_stamp(path, content.stamp)
    else:
        store.put(path, content.stamp, content.digest, content.chunks)
