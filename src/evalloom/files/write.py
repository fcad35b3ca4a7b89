"""Files that are either written whole or not touched at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evalloom.core.errors import EvalloomError


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the place of `path` only when the block ends well."""
    temporary: Path | None = None
    try:
        if _is_special(path):
            with path.open("wb") as stream:
                yield stream
            return
        # A link stays a link: the file that it leads to is written.
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not `tempfile`, which takes longer to import than most files take to write.
        temporary = target.parent / f".evalloom.{os.urandom(6).hex()}.tmp"
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        temporary = None
    except OSError as fault:
        raise _unwritable(path, fault) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, whole or not at all."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def _is_special(path: Path) -> bool:
    """Whether this is a device or a pipe, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _mode(path: Path) -> int:
    """The mode of the file that is replaced, or what a new file would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(path: Path, fault: OSError) -> EvalloomError:
    reason = (fault.strerror or str(fault)).lower()
    return EvalloomError("cannot_write", f"{path.as_posix()}: cannot be written: {reason}")
