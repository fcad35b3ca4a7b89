"""The folder of batches: which there are, which is meant, and how one is removed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from evalloom.batchlog.read import MANIFEST, manifest
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch
from evalloom.core.text import did_you_mean

FOLDER = Path(".evalloom") / "batches"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def new_id() -> str:
    """An id that sorts by time and that no other process takes."""
    now = datetime.now(UTC)
    # To the millisecond: whoever runs twice within a second still means the second one by `latest`.
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}{secrets.token_hex(3)}"


def batches(folder: Path = FOLDER, warn: Callable[[str], None] = lambda message: None) -> Iterator[tuple[Path, Batch]]:
    """The batches that can be read, newest first; about the others there is a warning."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir(), reverse=True):
        if (path / MANIFEST).is_file():
            try:
                yield path, manifest(path)
            except EvalloomError as fault:
                warn(str(fault))


def find(name: str, folder: Path = FOLDER) -> Path:
    """The batch of this id, of a beginning that only one has, `latest`, or at this path."""
    if name in ("latest", "last"):
        newest = next(batches(folder), None)
        if newest is None:
            raise usage_error("no_batch", f"{folder.as_posix()}: there is no batch yet. 'evalloom run' makes one")
        return newest[0]
    # Not Path.is_file, which raises for a name that is too long for a file.
    if os.path.isfile(Path(name) / MANIFEST):
        return Path(name)
    there = sorted(path.name for path in folder.iterdir() if (path / MANIFEST).is_file()) if folder.is_dir() else []
    meant = [id for id in there if id == name] or [id for id in there if id.startswith(name) and _ID.fullmatch(name)]
    if len(meant) == 1:
        return folder / meant[0]
    if meant:
        raise usage_error("no_batch", f"{name!r} is the beginning of {len(meant)} batches: {', '.join(meant[:5])}")
    hint = did_you_mean(name, there) or ". 'evalloom batches list' shows what there is"
    raise usage_error("no_batch", f"there is no batch {name!r} in {folder.as_posix()}{hint}")


def remove(path: Path) -> None:
    """Removes a batch and everything in it."""
    try:
        shutil.rmtree(path)
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("cannot_write", f"{path.as_posix()}: cannot be removed: {reason}") from None
