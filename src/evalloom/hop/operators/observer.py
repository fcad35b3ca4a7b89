"""Records the runs of a hoplet: the tracer keeps the steps of one run (HOP-12), the observer logs all runs (HOP-13)."""

from __future__ import annotations

import errno
import math
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any, overload

from evalloom.core.clock import utc_now
from evalloom.core.model import Record
from evalloom.hop.operators.to_json import as_json, in_words, json_of
from evalloom.hop.outcome import outcome_of

FILE_NAME = "observer.jsonl"
_LONGEST_TASK = 200


class HopletObserver:
    """Appends one line to `observer.jsonl` when a run starts, one per step, and one when it ends.

    Concurrent runs, threads and processes may share the file.

    Errors are collected in `errors` and never reach the observed run.
    """

    def __init__(
        self,
        path: str | Path,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        path = Path(path)
        self.path = path / FILE_NAME if path.is_dir() or path.suffix != ".jsonl" else path
        self._place = self.path.absolute()
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
        self._append(
            {"type": "step", "run_id": run_id, "timestamp": _now(), **fields, **_without_none(metadata=metadata)}
        )

    def run_end(
        self, run_id: str, status: str, duration: float, result: Any = None, metadata: Record | None = None
    ) -> None:
        """Log the end of a run: its status and its duration in seconds."""
        ended = {"type": "run_end", "run_id": run_id, "timestamp": _now(), "duration": duration, "status": status}
        self._append({**ended, **_without_none(result=result, metadata=metadata)})

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
                    self._file, self._is_cut = _open_log(self._place)
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


def _open_log(path: Path) -> tuple[int, bool]:
    """Open the file for appending, and return whether its last line is truncated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    size = os.fstat(file).st_size
    return file, size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _without_none(**fields: Any) -> Record:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _now() -> str:
    return utc_now("milliseconds")


class Tracer:
    """Records the steps of one run, in the order in which they end. Never raises."""

    def __init__(
        self, trace: list[Record] | None = None, observer: HopletObserver | None = None, run_id: str = ""
    ) -> None:
        self.steps: list[Record] = []
        self._trace = trace if trace is not None else []
        self._observer = observer
        self._run_id = run_id
        self._is_closed = False

    @overload
    def trace_step(
        self,
        op: str,
        task: str = "",
        status: str | Enum = "OK",
        duration: float | None = 0.0,
        retry_count: int = 0,
        metadata: Record | None = None,
        step: int | str | None = None,
    ) -> None: ...

    @overload
    def trace_step(
        self,
        step: int,
        op: str,
        task: str = "",
        status: str | Enum = "OK",
        duration: float | None = 0.0,
        retry_count: int = 0,
        metadata: Record | None = None,
    ) -> None: ...

    def trace_step(self, *positional: Any, **named: Any) -> None:
        """Record one step: `trace_step("retrieve", "find documents", "OK", 0.2)`, or with its number in front.

        Operators do this automatically; a hoplet may add its own steps. An unknown duration is None. Values in
        `metadata` that are not JSON are converted to text, and arguments of other names are added to it.
        """
        if self._is_closed:
            return
        names = _NUMBERED_STEP if _starts_with_number(positional) else _STEP
        given = dict(zip(names, positional, strict=False)) | named
        step, status, metadata = given.get("step"), given.get("status", "OK"), given.get("metadata")
        if others := {name: value for name, value in given.items() if name not in _STEP}:
            metadata = {**(metadata if isinstance(metadata, dict) else {}), **others}
        fields: Record = as_json(
            {
                "step": len(self.steps) + 1 if step is None else step if isinstance(step, int) else in_words(step),
                "op": in_words(given.get("op", "")),
                "task": in_words(given.get("task", ""))[:_LONGEST_TASK],
                "status": outcome_of(status) or in_words(status.name if isinstance(status, Enum) else status),
                "retry_count": int(_number(given.get("retry_count", 0)) or 0),
                "duration": _number(given.get("duration", 0.0)),
            }
        )
        metadata = as_json(metadata)
        self.steps.append(fields)
        self._trace.append({"type": "step", **fields, **({"metadata": metadata} if metadata else {})})
        if self._observer is not None:
            self._observer.step(self._run_id, fields, metadata)

    def close(self) -> None:
        """Stop recording: steps that a hoplet takes after its run has ended are not part of the run."""
        self._is_closed = True


_STEP = ("op", "task", "status", "duration", "retry_count", "metadata", "step")
_NUMBERED_STEP = ("step", "op", "task", "status", "duration", "retry_count", "metadata")


def _starts_with_number(positional: tuple[Any, ...]) -> bool:
    """Return whether a step is written with its number, or its name, in front of the operator.

    A name is recognized by the fourth value, which is then the status; otherwise it is the duration.
    """
    if positional and isinstance(positional[0], int):
        return True
    return len(positional) > 3 and isinstance(positional[3], str | Enum) and _number(positional[3]) is None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:  # users' code: any value may be passed as a number
        return None
    return round(number, 6) if math.isfinite(number) else None
