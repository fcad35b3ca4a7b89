"""Marks a replay as running by a locked file: the lock ends with its process, however that ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

ReplayState = Literal["running", "interrupted", "complete"]
"""`interrupted`: fewer rows are stored than were asked for, and no process adds more."""


class RunningMark:
    """Holds the mark of one replay until it is closed or the process ends."""

    def __init__(self, store: Path, replay_id: str) -> None:
        self._path = _path(store, replay_id)
        # Locked before it has its name, so that whoever finds it unlocked knows that its process is gone.
        unnamed = self._path.with_suffix(".new")
        self._stream = os.fdopen(os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        with suppress(ImportError, OSError):  # Windows has no flock, and not every file system does
            import fcntl

            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.replace(unnamed, self._path)

    def close(self) -> None:
        """Remove the mark."""
        self._path.unlink(missing_ok=True)
        self._stream.close()


def is_running(store: Path, replay_id: str) -> bool:
    """Whether a process is adding rows to a replay; remove the mark of one that is gone."""
    path = _path(store, replay_id)
    try:
        import fcntl

        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except ImportError:
        return path.exists()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _path(store: Path, replay_id: str) -> Path:
    return store.with_name(f"{replay_id}.running")
