"""The progress of running batches, read from their logs: also of those that somebody runs on the command line."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic
from typing import IO

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import STATUSES
from evalloom.batchlog.read import RUNS, VERDICTS
from evalloom.core.model import Status
from evalloom.pages.library import BatchSummary, Library

_FRESH_S = 0.4
"""For how long a progress is used again, so that fifty viewers cost as much as one."""
_BLOCK = 1 << 20


class Progress(Struct, frozen=True):
    """How far a batch is."""

    batch: str
    state: str
    done: int
    planned: int
    counts: dict[Status, int]
    left_s: float | None = None
    """The estimated time until the end."""


class _RunLine(Struct, frozen=True):
    key: str
    error: str = ""
    skipped: str = ""
    blocked: str = ""


class _VerdictLine(Struct, frozen=True):
    key: str
    status: Status


_read_run = msgspec.json.Decoder(_RunLine).decode
_read_verdict = msgspec.json.Decoder(_VerdictLine).decode


class _Tail:
    """The complete lines that were appended to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""

    def lines(self) -> list[bytes]:
        if self._stream is None:
            try:
                self._stream = self._path.open("rb")
            except OSError:
                return []
        lines: list[bytes] = []
        while block := self._stream.read(_BLOCK):
            complete = (self._rest + block).split(b"\n")
            self._rest = complete.pop()
            lines += complete
        return lines

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class _Follower:
    """Counts the statuses of the runs of one batch; each key counts once, with its last status."""

    def __init__(self, path: Path) -> None:
        self._runs = _Tail(path / RUNS)
        self._verdicts = _Tail(path / VERDICTS)
        self._status: dict[str, Status | None] = {}
        self.counts: dict[Status, int] = {}
        self.looked_at = 0.0
        self.history: list[tuple[float, int]] = []

    def follow(self) -> None:
        for line in self._runs.lines():
            try:
                run = _read_run(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            status: Status | None = (
                "error" if run.error else "skipped" if run.skipped else "blocked" if run.blocked else None
            )
            self._set(run.key, status or self._status.get(run.key))
        for line in self._verdicts.lines():
            try:
                verdict = _read_verdict(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            self._set(verdict.key, verdict.status)
        self.looked_at = monotonic()
        self.history = [*self.history[-20:], (self.looked_at, self.done)]

    @property
    def done(self) -> int:
        return len(self._status)

    def left_s(self, planned: int) -> float | None:
        """Estimate the time that is left from the speed since the first look that is remembered."""
        (then, before), (now, done) = self.history[0], self.history[-1]
        if done <= before or now <= then or not planned:
            return None
        return max(0.0, (planned - done) * (now - then) / (done - before))

    def _set(self, key: str, status: Status | None) -> None:
        old = self._status.get(key)
        if old is not None:
            self.counts[old] -= 1
        self._status[key] = status
        if status is not None:
            self.counts[status] = self.counts.get(status, 0) + 1

    def close(self) -> None:
        self._runs.close()
        self._verdicts.close()


class LiveBatches:
    """The progress of batches that are being written. All methods are thread-safe."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._followers: dict[str, _Follower] = {}
        self._running: tuple[float, list[BatchSummary]] = (-_FRESH_S, [])
        self.is_ended = False

    def end(self) -> None:
        """End the streams: the server stops. Browsers connect again when there is one."""
        self.is_ended = True

    def running(self) -> list[BatchSummary]:
        """Return the batches that are being written, newest first."""
        with self._lock:
            if monotonic() - self._running[0] > _FRESH_S:
                batches = [summary for summary in self._library.summaries() if summary.state == "running"]
                self._running = (monotonic(), batches)
                for gone in self._followers.keys() - {batch.id for batch in batches}:
                    self._followers.pop(gone).close()
            return self._running[1]

    def progress(self, id: str) -> Progress:
        """Return how far a batch is."""
        summary = self._library.summary(id)
        if summary.state != "running":
            counts: dict[Status, int] = {name: summary.summary[name] for name in STATUSES if summary.summary.get(name)}
            return Progress(summary.id, summary.state, summary.summary.get("total", 0), summary.planned, counts)
        with self._lock:
            follower = self._followers.get(summary.id)
            if follower is None:
                follower = self._followers[summary.id] = _Follower(self._library.path(summary.id))
            if monotonic() - follower.looked_at > _FRESH_S:
                follower.follow()
            counts = {status: count for status, count in follower.counts.items() if count}
            left = follower.left_s(summary.planned)
            return Progress(summary.id, "running", follower.done, summary.planned, counts, left)
