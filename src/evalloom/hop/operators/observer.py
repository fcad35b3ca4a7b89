"""The observer's log: one line when a run begins, one for each of its steps, one when it ends (HOP-13)."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from evalloom.core.model import Record
from evalloom.hop.operators.to_json import in_words, json_of

FILE_NAME = "observer.jsonl"


class HopletObserver:
    """Appends to `observer.jsonl`, from any number of runs, threads and processes at once.

    Whatever goes wrong here is kept in `faults` and never reaches the run that is observed.
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
        self.faults: list[str] = []
        """What kept it from writing; the first time only."""

    def run_start(self, hoplet: str, input: Any) -> str:
        """Says that a run begins, and gives the id under which the rest of it is written."""
        run_id = secrets.token_hex(8)
        self._append({"type": "run_start", "run_id": run_id, "timestamp": _now(), "hoplet": hoplet, "input": input})
        return run_id

    def step(self, run_id: str, step: Record, metadata: Record | None = None) -> None:
        """Writes one step: `step, op, task, status, retry_count, duration`."""
        told = step if isinstance(step, dict) else {"step": step}
        self._append({"type": "step", "run_id": run_id, "timestamp": _now(), **told, **_beside(metadata=metadata)})

    def run_end(
        self, run_id: str, status: str, duration: float, result: Any = None, metadata: Record | None = None
    ) -> None:
        """Says how a run ended, and after how many seconds."""
        ended = {"type": "run_end", "run_id": run_id, "timestamp": _now(), "duration": duration, "status": status}
        self._append({**ended, **_beside(result=result, metadata=metadata)})

    def close(self) -> None:
        """Lets go of the file; what is written afterwards opens it again."""
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
        except Exception as fault:  # users' code: `hide` may be theirs, and nothing here may end a run
            if not self.faults:
                reason = getattr(fault, "strerror", None) or in_words(fault)
                self.faults.append(f"{self.path.as_posix()}: cannot be written, so runs went unobserved: {reason}")

    def _write(self, line: bytes) -> None:
        """Appends a line, after the end of one that a full disk cut off.

        It goes in one write, so that lines of other processes stay whole and so does this one; what did not fit is
        tried once more.
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
    """The file, ready to be appended to, and whether a crash cut off its last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    size = os.fstat(file).st_size
    return file, size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _beside(**fields: Any) -> Record:
    """The optional fields that there is something to say in."""
    return {name: value for name, value in fields.items() if value is not None}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
