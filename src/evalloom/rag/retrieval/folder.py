"""Finds the documents under a folder, without following links out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, NamedTuple

from msgspec import Struct, field

from evalloom.rag.retrieval.decoding import UnreadableDocument
from evalloom.rag.retrieval.readers import LARGEST, READERS

_PASSED_OVER = frozenset(("node_modules", "__pycache__"))


class Unread(Struct, frozen=True):
    """A document, or a folder of them, that could not be read, and why."""

    path: str
    reason: str


class FileStamp(NamedTuple):
    """File metadata that shows whether a file changed, without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def stamp_of(stat: os.stat_result) -> FileStamp:
    return FileStamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


class FolderScan(Struct):
    """The documents under a folder by relative path; `passed_over` counts files of other kinds."""

    stamps: dict[str, FileStamp] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    passed_over: int = 0


def suffix_of(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def scan_folder(root: Path) -> FolderScan:
    """Find every document under a folder; a linked folder counts when it lies inside and is not visited otherwise."""
    scan = FolderScan()
    base = os.path.realpath(root)
    visited: set[str] = set()
    folders, links = [""], list[str]()
    while folders or links:
        here = folders.pop() if folders else links.pop()
        real = os.path.realpath(os.path.join(base, here))
        if reason := _link_skip_reason(real, base):
            scan.unread.append(Unread(shown(here) + "/", reason))
            continue
        if real in visited:
            continue
        visited.add(real)
        try:
            with os.scandir(os.path.join(base, here)) as entries:
                for entry in entries:
                    path = f"{here}/{entry.name}" if here else entry.name
                    _classify(entry, path, base, scan, folders, links)
        except OSError as error:
            scan.unread.append(Unread(shown(here) + "/", f"cannot be opened: {(error.strerror or str(error)).lower()}"))
        if not folders:
            # Directory order must not decide which of two links names a folder.
            links.sort(reverse=True)
    return scan


def _classify(
    entry: os.DirEntry[str], path: str, base: str, scan: FolderScan, folders: list[str], links: list[str]
) -> None:
    """Add an entry to the scan, or to the folders that are still to be visited."""
    if _is_passed_over(entry.name):
        return
    is_document = suffix_of(entry.name) in READERS
    try:
        stat = entry.stat()
    except OSError as error:
        if is_document:
            scan.unread.append(Unread(shown(path), f"cannot be opened: {(error.strerror or str(error)).lower()}"))
        return
    if S_ISDIR(stat.st_mode):
        (links if entry.is_symlink() else folders).append(path)
    elif S_ISREG(stat.st_mode) and not is_document:
        scan.passed_over += 1
    elif S_ISREG(stat.st_mode):
        reason = _skip_reason(entry, path, base, stat.st_size)
        if reason:
            scan.unread.append(Unread(shown(path), reason))
        else:
            scan.stamps[path] = stamp_of(stat)


def _skip_reason(entry: os.DirEntry[str], path: str, base: str, size: int) -> str:
    """Why a document is skipped; empty when it is read."""
    if shown(path) != path:
        return "has a name that is not UTF-8. Rename it"
    if entry.is_symlink() and (reason := _link_skip_reason(os.path.realpath(entry.path), base)):
        return reason
    if size > LARGEST:
        return f"is larger than {LARGEST >> 20} MB. Split it"
    return ""


def _link_skip_reason(real: str, base: str) -> str:
    """Why the target of a link is skipped; empty when it is read."""
    if real != base and not real.startswith(base.rstrip("/") + "/"):
        return "is a link that leads out of the folder. Copy what it leads to, or name a folder that contains both"
    if any(map(_is_passed_over, real[len(base) :].split("/"))):
        return "is a link to a hidden file or folder, which is skipped. Copy what it leads to"
    return ""


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name in _PASSED_OVER


@contextmanager
def open_document(base: str, path: str) -> Iterator[BinaryIO]:
    """Open a document for reading. Raises OSError or UnreadableDocument.

    Since the scan it may have become a pipe, which would block, or a link that leads out of the folder, so the checks
    look at the opened file.
    """
    handle = os.open(os.path.join(base, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        if not S_ISREG(os.fstat(handle).st_mode):
            raise UnreadableDocument("is not a regular file", may_change=True)
        try:
            real = os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            # Without /proc, resolve the path again.
            real = os.path.realpath(os.path.join(base, path))
        if reason := _link_skip_reason(real, base):
            raise UnreadableDocument(reason, may_change=True)
        yield stream


def shown(path: str) -> str:
    """A path as text, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
