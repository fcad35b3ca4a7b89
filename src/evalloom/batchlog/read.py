"""Reads a batch back, also while it is written and after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored

FORMAT = 1
MANIFEST, RUNS, VERDICTS = "batch.json", "runs.jsonl", "verdicts.jsonl"


class Damage(NamedTuple):
    """A line that could not be read, and was left out."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class _Mark(msgspec.Struct):
    """As much of a run as it takes to know whether it is done."""

    key: str
    error: str = ""
    skipped: str = ""
    blocked: str = ""


_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a damaged line raises when it is decoded."""

Line = TypeVar("Line", Run, Scored, _Mark)
_MarkLike = TypeVar("_MarkLike", bound=_Mark)


def manifest(path: Path) -> Batch:
    """What was asked for in a batch."""
    file = path / MANIFEST
    try:
        text = file.read_bytes()
        version = msgspec.json.decode(text, type=dict).get("format")
        if not isinstance(version, int) or version > FORMAT:
            message = (
                f"{file.as_posix()}: has format {version!r}, and this evalloom reads up to {FORMAT}. Upgrade evalloom"
            )
            raise EvalloomError("newer_batch", message, exit_code=2)
        return msgspec.json.decode(text, type=Batch)
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("no_batch", f"{file.as_posix()}: expected a batch, got: {reason}", exit_code=2) from None
    except _BROKEN as fault:
        raise EvalloomError(
            "bad_batch", f"{file.as_posix()}: is no manifest of a batch: {fault}", exit_code=2
        ) from None


def finished(path: Path, with_errors: bool = True, not_with: str = "") -> set[str]:
    """The keys of the runs that need not be run again; `not_with` is the code of an error that is tried again.

    Those that were skipped or blocked are not among them: whether that still holds costs nothing to find out.
    """
    keys = set()
    # Read whole: a damaged run must not pass for one that is there.
    for _, run in _structs(path / RUNS, Run, None):
        if _is_done(run, with_errors, not_with):
            keys.add(run.key)
        else:
            keys.discard(run.key)
    return keys


def _is_done(run: Run | _Mark, with_errors: bool, not_with: str) -> bool:
    if run.error and not_with and run.error.endswith(f"[{not_with}]"):
        return False
    return (with_errors or not run.error) and not run.skipped and not run.blocked


def pairs(path: Path, damage: list[Damage] | None = None) -> Iterator[tuple[Run, Scored | None]]:
    """Every run once, as it was last written, with its verdicts where there are any: an error has none."""
    path = Path(path)  # from Python, people give a text
    verdicts = _last_of_each(path / VERDICTS, Scored, damage)
    early: dict[str, Scored] = {}
    for run in _last_of_each(path / RUNS, Run, damage):
        # Both files are written in about the same order, so little has to be kept in between.
        while not run.error and run.key not in early and (found := next(verdicts, None)) is not None:
            early[found.key] = found
        scored = early.pop(run.key, None)
        yield run, scored if scored is not None and _is_of(scored, run) else None


def _is_of(scored: Scored, run: Run) -> bool:
    """Whether verdicts are of this run, and not of one that was blocked, in whose place it was made."""
    is_blocked, is_skipped = scored.status == "blocked", scored.status == "skipped"
    return not run.error and is_blocked is bool(run.blocked) and is_skipped is bool(run.skipped)


def _last_of_each(path: Path, type: type[Line], damage: list[Damage] | None) -> Iterator[Line]:
    """The last line of each key that is there now, in the order of the file."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    end = 0
    for end, mark in _structs(path, _Mark, None):
        if mark.key in seen:
            last[mark.key] = end
        seen.add(mark.key)
    for number, line in _structs(path, type, damage):
        if number > end:
            return  # written since
        if last.get(line.key, number) == number:
            yield line


def _structs(path: Path, type: type[Line], damage: list[Damage] | None) -> Iterator[tuple[int, Line]]:
    decoder = msgspec.json.Decoder(type)
    for number, line in enumerate(_lines(path), 1):
        try:
            yield number, decoder.decode(line)
        except _BROKEN as fault:
            if damage is not None:
                damage.append(Damage(path.name, number, str(fault)))


def _lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a file; a last one without its end is still being written, or never will be."""
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def mend_tail(path: Path) -> Iterator[Damage]:
    """Cuts off a last line that a crash left without its end, and says so."""
    with path.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = size
        while start and not _ends_line(stream, start):
            start = _line_start(stream, start)
        if start < size:
            stream.truncate(start)
            yield Damage(path.name, 0, f"the last {size - start} bytes were cut off by a crash and are left out")


def _ends_line(stream: BinaryIO, at: int) -> bool:
    stream.seek(at - 1)
    return stream.read(1) == b"\n"


def _line_start(stream: BinaryIO, at: int) -> int:
    """Where the line begins that ends at `at`."""
    while at:
        step = min(at, 64 * 1024)
        stream.seek(at - step)
        found = stream.read(step).rfind(b"\n")
        if found >= 0:
            return at - step + found + 1
        at -= step
    return 0


class RunIndex:
    """The runs of a batch that are `finished`, by key: where the last line of each stands, read when asked for."""

    def __init__(self, path: Path, with_errors: bool = True, not_with: str = "") -> None:
        self._file = path / RUNS
        self._places: dict[str, int] = {}
        for at, mark in _placed(self._file, _Mark):
            if _is_done(mark, with_errors, not_with):
                self._places[mark.key] = at
            else:
                self._places.pop(mark.key, None)

    def get(self, key: str) -> Run | None:
        """The run of this key, as it was last written."""
        at = self._places.get(key)
        if at is None:
            return None
        with self._file.open("rb") as stream:
            return _line_at(stream, at, msgspec.json.Decoder(Run))


class _Place(_Mark):
    """As much of a run as it takes to put runs in order."""

    case_id: str = ""
    profile: str = ""
    number: int = 0
    repeat: int = 0


def in_order(path: Path, profiles: list[str]) -> Iterator[tuple[Run, Scored | None]]:
    """Every run once: by profile, case and repeat. Only the places of the lines are held in memory."""
    runs: dict[str, tuple[int, int, str, int, int]] = {}
    rank = {name: number for number, name in enumerate(profiles)}
    for at, mark in _placed(path / RUNS, _Place):
        profile = rank.setdefault(mark.profile, len(rank))
        # By the id too: in a log that another program wrote, many cases may share a number.
        runs[mark.key] = (profile, mark.number, mark.case_id, mark.repeat, at)
    verdicts = {mark.key: at for at, mark in _placed(path / VERDICTS, _Mark)}
    run_decoder, scored_decoder = msgspec.json.Decoder(Run), msgspec.json.Decoder(Scored)
    with ExitStack() as files:
        run_lines = files.enter_context((path / RUNS).open("rb")) if runs else BytesIO()
        verdict_lines = files.enter_context((path / VERDICTS).open("rb")) if verdicts else BytesIO()
        for key, place in sorted(runs.items(), key=lambda item: item[1]):
            run = _line_at(run_lines, place[-1], run_decoder)
            if run is None:
                continue
            scored = _line_at(verdict_lines, verdicts[key], scored_decoder) if key in verdicts else None
            yield run, scored if scored is not None and _is_of(scored, run) else None


def _line_at(stream: BinaryIO, at: int, decoder: msgspec.json.Decoder[Line]) -> Line | None:
    """The line at this place, unless it is damaged."""
    stream.seek(at)
    try:
        return decoder.decode(stream.readline())
    except _BROKEN:
        return None


def _placed(path: Path, type: type[_MarkLike]) -> Iterator[tuple[int, _MarkLike]]:
    decoder, at = msgspec.json.Decoder(type), 0
    for line in _lines(path):
        with suppress(*_BROKEN):
            yield at, decoder.decode(line)
        at += len(line)
