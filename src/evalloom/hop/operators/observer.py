"""The observer's log: one line when a run starts, one per step, one when it ends (HOP-13)."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from evalloom.core.clock import utc_now
from evalloom.core.model import Record
from evalloom.hop.operators.to_json import in_words, json_of

FILE_NAME = "observer.jsonl"


class HopletObserver:
    """Appends to `observer.jsonl`, safely from concurrent runs, threads and processes.

    Errors are collected in `errors` and never reach the observed run.
    """

    def __init__(
        self,
        path: str | Path,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        path = Path(path)
        self.path = path / FILE_NAME if path.is_dir() or path.suffix != ".jsonl" else path
        self._hide = hide
        self._lock = Lock()
        self._file = -1
        self._is_cut = False
        self.errors: list[str] = []
        """The first write error, if any."""

    @property
    def faults(self) -> list[str]:
        """The name that `errors` had in version 0.1."""
        return self.errors

    def run_start(self, hoplet: str, input: Any) -> str:
        """Log the start of a run, and return its id."""
        run_id = secrets.token_hex(8)
        self._append({"type": "run_start", "run_id": run_id, "timestamp": _now(), "hoplet": hoplet, "input": input})
        return run_id

    def step(self, run_id: str, step: Record, metadata: Record | None = None) -> None:
        """Log one step: `step, op, task, status, retry_count, duration`."""
        fields = step if isinstance(step, dict) else {"step": step}
        self._append({"type": "step", "run_id": run_id, "timestamp": _now(), **fields, **_beside(metadata=metadata)})

    def run_end(
        self, run_id: str, status: str, duration: float, result: Any = None, metadata: Record | None = None
    ) -> None:
        """Log the end of a run: its status and its duration in seconds."""
        ended = {"type": "run_end", "run_id": run_id, "timestamp": _now(), "duration": duration, "status": status}
        self._append({**ended, **_beside(result=result, metadata=metadata)})

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        with self._lock, suppress(OSError):
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def _append(self, record: Record) -> None:
        try:
            line = self._hide(json_of(record)).encode() + b"\n"
            with self._lock:
                if self._file < 0:
                    self._file, self._is_cut = _opened(self.path)
                self._write(line)
        except Exception as error:  # users' code: `hide` may be theirs, and nothing here may end a run
            if not self.errors:
                reason = getattr(error, "strerror", None) or in_words(error)
                self.errors.append(f"{self.path.as_posix()}: cannot be written, so runs are not observed: {reason}")

    def _write(self, line: bytes) -> None:
        """Append a line, on a new line if a full disk truncated the previous one.

        A single write keeps the lines of concurrent processes intact; the rest of a short write is retried once.
        """
        rest = b"\n" + line if self._is_cut else line
        for _ in range(2):
            rest = rest[os.write(self._file, rest) :]
            self._is_cut = bool(rest)
            if not rest:
                return
        raise OSError(errno.ENOSPC, "a line was written in part only")


Observer = HopletObserver


def _opened(path: Path) -> tuple[int, bool]:
    """Open the file for appending, and return whether its last line is truncated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    size = os.fstat(file).st_size
    return file, size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _beside(**fields: Any) -> Record:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _now() -> str:
    return utc_now("milliseconds")
