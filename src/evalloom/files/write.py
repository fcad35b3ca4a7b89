"""Files that are either written whole or not touched at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evalloom.errors import EvalloomError


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the place of `path` only when the block ends well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as fault:
        raise _unwritable(path, fault) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except OSError as fault:
        Path(name).unlink(missing_ok=True)
        raise _unwritable(path, fault) from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, whole or not at all."""
    with atomic_writer(path) as stream:
        stream.write(text.encode())


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
