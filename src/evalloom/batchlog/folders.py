"""The folder of batches: list, find and remove them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evalloom.batchlog.read import MANIFEST, RUNS, manifest
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Batch
from evalloom.core.text import did_you_mean

FOLDER = Path(".evalloom") / "batches"
_ID_TIME = lazy_pattern(r"\d{8}-\d{6}-\d{3}(?=[0-9a-f]{6}$)")
_ID = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def new_id(folder: Path = FOLDER) -> str:
    """Return a unique id that sorts by time, and after all ids in a folder, also when the clock was set back."""
    # To the millisecond, so that `latest` is right for two runs within a second.
    time = _id_time(datetime.now(UTC))
    names = os.listdir(folder) if folder.is_dir() else ()
    newest = max((match[0] for match in map(_ID_TIME.match, names) if match), default="")
    if newest >= time:
        with suppress(ValueError, OverflowError):  # digits that are no date
            time = _id_time(datetime.strptime(newest, "%Y%m%d-%H%M%S-%f") + timedelta(milliseconds=1))
    return time + os.urandom(3).hex()


def _id_time(time: datetime) -> str:
    return f"{time:%Y%m%d-%H%M%S}-{time.microsecond // 1000:03}"


def batches(folder: Path = FOLDER, warn: Callable[[str], None] = lambda message: None) -> Iterator[tuple[Path, Batch]]:
    """Yield the readable batches, newest first, and warn about the others."""
    for path in sorted(_folders(folder), reverse=True):
        try:
            yield path, manifest(path)
        except EvalloomError as error:
            warn(str(error))


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of batches, also of those whose manifest is lost."""
    yield from filter(is_batch, folder.iterdir() if folder.is_dir() else ())


def is_batch(path: Path) -> bool:
    """Whether a folder is a batch, also one whose manifest is lost."""
    # Not Path.is_file, which raises for a name that is too long for a file.
    return os.path.isfile(path / MANIFEST) or (os.path.isfile(path / RUNS) and os.path.getsize(path / RUNS) > 0)


def find(name: str, folder: Path = FOLDER) -> Path:
    """Find a batch by its id, a unique beginning of it, `latest`, or its path."""
    if name in ("latest", "last"):
        newest = max(_folders(folder), default=None)
        if newest is None:
            raise usage_error("no_batch", f"{folder.as_posix()}: there is no batch yet. 'evalloom run' makes one")
        return newest
    if is_batch(Path(name)):
        return Path(name)
    ids = sorted(path.name for path in _folders(folder))
    matches = [id for id in ids if id == name] or [id for id in ids if id.startswith(name) and _ID.fullmatch(name)]
    if len(matches) == 1:
        return folder / matches[0]
    if matches:
        message = f"{name!r} is the beginning of {len(matches)} batches: {', '.join(matches[:5])}"
        raise usage_error("ambiguous_batch", message)
    hint = did_you_mean(name, ids) or ". 'evalloom batches list' shows what there is"
    raise usage_error("no_batch", f"there is no batch {name!r} in {folder.as_posix()}{hint}")


def remove(path: Path) -> None:
    """Remove a batch and everything in it."""
    import shutil

    try:
        shutil.rmtree(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("cannot_write", f"{path.as_posix()}: cannot be removed: {reason}") from None


def is_in_use(path: Path) -> bool:
    """Whether a process is writing this batch."""
    try:
        import fcntl

        with (path / RUNS).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, FileNotFoundError):
        return False
    except OSError:
        return True
    return False
