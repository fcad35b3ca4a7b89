"""Writes files atomically: completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from evalloom.core.errors import EvalloomError


@contextmanager
def atomic_writer(path: Path, is_synced: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; it replaces `path` when the block ends without an error.

    Without `is_synced`, the caller syncs the file and its name to disk.
    """
    temporary: Path | None = None
    try:
        # A device or a pipe cannot be replaced.
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                yield stream
            return
        # A link stays a link: replace the file that it points to.
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(target)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if is_synced:
                os.fsync(stream.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        temporary = None
        if is_synced:
            sync_names(target.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        if temporary is not None:
            # On a read-only disk this raises even for a file that does not exist.
            with suppress(OSError):
                temporary.unlink()


def sync_names(*folders: Path) -> None:
    """Write the names of new files to disk, where folders can be synced, so that they survive a loss of power."""
    for folder in folders:
        with suppress(OSError):
            sync_path(folder)


def sync_path(path: Path) -> None:
    """Write the content of a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refuse_unwritable(path: Path) -> None:
    """Raise if a file cannot be written. Its folder is created; the file itself is not touched."""
    try:
        if path.exists() and not path.is_file():
            if path.is_dir() or not os.access(path, os.W_OK):
                code = errno.EISDIR if path.is_dir() else errno.EACCES
                raise OSError(code, os.strerror(code))
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(target)
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(temporary)
    except OSError as error:
        raise _unwritable(path, error) from None


def _temporary(target: Path) -> Path:
    # Not `tempfile`, which takes longer to import than most files take to write.
    return target.parent / f".evalloom.{os.urandom(6).hex()}.tmp"


def _unwritable(path: Path, error: OSError) -> EvalloomError:
    # Creating the folder of a file that is there as a file.
    reason = "not a directory" if isinstance(error, FileExistsError) else (error.strerror or str(error)).lower()
    return EvalloomError("cannot_write", f"{path.as_posix()}: cannot be written: {reason}")


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, completely or not at all."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def _mode(path: Path) -> int:
    """Return the mode of the replaced file, or that of a new file."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
