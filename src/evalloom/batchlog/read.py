"""Read a batch, also while it is written and after a crash."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored

FORMAT = 2
MANIFEST, RUNS, VERDICTS = "batch.json", "runs.jsonl", "verdicts.jsonl"


class Damage(Struct, frozen=True):
    """A line that cannot be read and is skipped."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class _RunState(msgspec.Struct):
    """The fields of a run that tell whether it is done."""

    key: str
    error: str = ""
    skipped: str = ""
    blocked: str = ""


_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding a damaged line."""

Line = TypeVar("Line", Run, Scored, _RunState)
_State = TypeVar("_State", bound=_RunState)


def manifest(path: Path) -> Batch:
    """Read the manifest of a batch."""
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
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("no_batch", f"{file.as_posix()}: expected a batch, got: {reason}", exit_code=2) from None
    except _BROKEN as error:
        raise EvalloomError("bad_batch", f"{file.as_posix()}: is not a batch manifest: {error}", exit_code=2) from None


def finished(path: Path, with_errors: bool = True, retried_codes: Collection[str] = ()) -> set[str]:
    """Return the keys of the runs that are done; runs with an error code of `retried_codes` are to be run again.

    Skipped and blocked runs are not done either, because checking again whether they can run costs nothing.
    """
    keys = set()
    # Decode whole runs: a damaged one does not count as done.
    for _, run in _structs(path / RUNS, Run, None):
        if _is_done(run, with_errors, retried_codes):
            keys.add(run.key)
        else:
            keys.discard(run.key)
    return keys


def _is_done(run: Run | _RunState, with_errors: bool, retried_codes: Collection[str]) -> bool:
    if run.error and retried_codes and run.error.rpartition("[")[2].removesuffix("]") in retried_codes:
        return False
    return (with_errors or not run.error) and not run.skipped and not run.blocked


def pairs(path: Path, damage: list[Damage] | None = None) -> Iterator[tuple[Run, Scored | None]]:
    """Yield the last version of every run, with its verdicts; a run with an error has none."""
    path = Path(path)  # from Python, it may be a str
    verdicts = _last_of_each(path / VERDICTS, Scored, damage)
    early: dict[str, Scored] = {}
    for run in _last_of_each(path / RUNS, Run, damage):
        # Both files have about the same order, so few verdicts are held in memory.
        while not run.error and run.key not in early and (verdict := next(verdicts, None)) is not None:
            early[verdict.key] = verdict
        scored = early.pop(run.key, None)
        yield run, scored if scored is not None and _belongs_to(scored, run) else None


def _belongs_to(scored: Scored, run: Run) -> bool:
    """Whether verdicts belong to this version of the run: an earlier one may have been blocked or skipped."""
    is_blocked, is_skipped = scored.status == "blocked", scored.status == "skipped"
    return not run.error and is_blocked is bool(run.blocked) and is_skipped is bool(run.skipped)


def _last_of_each(path: Path, type: type[Line], damage: list[Damage] | None) -> Iterator[Line]:
    """Yield the last line of each key, in the order of the file. Lines that are appended meanwhile are ignored."""
    keys: set[str] = set()
    last: dict[str, int] = {}
    end = 0
    for end, state in _structs(path, _RunState, None):
        if state.key in keys:
            last[state.key] = end
        keys.add(state.key)
    for number, line in _structs(path, type, damage):
        if number > end:
            return
        if last.get(line.key, number) == number:
            yield line


def _structs(path: Path, type: type[Line], damage: list[Damage] | None) -> Iterator[tuple[int, Line]]:
    decoder = msgspec.json.Decoder(type)
    for number, line in enumerate(_lines(path), 1):
        try:
            yield number, decoder.decode(line)
        except _BROKEN as error:
            if damage is not None:
                damage.append(Damage(path.name, number, str(error)))


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file; the last one may still be in writing."""
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    yield line
    except FileNotFoundError:
        return


def repair_tail(path: Path) -> Iterator[Damage]:
    """Remove an incomplete last line that a crash left behind."""
    with path.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = size
        while start:
            stream.seek(start - 1)
            if stream.read(1) == b"\n":
                break
            start = _line_start(stream, start)
        if start < size:
            stream.truncate(start)
            yield Damage(path.name, 0, f"a crash cut off the last line; its {size - start} bytes are removed")


def _line_start(stream: BinaryIO, at: int) -> int:
    """Return the start of the line that ends at `at`."""
    while at:
        step = min(at, 64 * 1024)
        stream.seek(at - step)
        newline = stream.read(step).rfind(b"\n")
        if newline >= 0:
            return at - step + newline + 1
        at -= step
    return 0


class RunIndex:
    """The finished runs of a batch by key; only the offsets of their lines are held in memory."""

    def __init__(self, path: Path, with_errors: bool = True, retried_codes: Collection[str] = ()) -> None:
        self._file = path / RUNS
        self._offsets: dict[str, int] = {}
        for at, state in _offsets(self._file, _RunState):
            if _is_done(state, with_errors, retried_codes):
                self._offsets[state.key] = at
            else:
                self._offsets.pop(state.key, None)

    def get(self, key: str) -> Run | None:
        """Return the last version of a run."""
        at = self._offsets.get(key)
        if at is None:
            return None
        with self._file.open("rb") as stream:
            return _line_at(stream, at, msgspec.json.Decoder(Run))


class _RunPosition(_RunState):
    """The fields of a run that define its order."""

    case_id: str = ""
    profile: str = ""
    number: int = 0
    repeat: int = 0


def in_order(path: Path, profiles: list[str]) -> Iterator[tuple[Run, Scored | None]]:
    """Yield every run once, by profile, case and repeat. Only the offsets of lines are held in memory."""
    runs: dict[str, tuple[int, int, str, int, int]] = {}
    rank = {name: number for number, name in enumerate(profiles)}
    for at, state in _offsets(path / RUNS, _RunPosition):
        profile = rank.setdefault(state.profile, len(rank))
        # By the id too: in a log of another program, cases may share a number.
        runs[state.key] = (profile, state.number, state.case_id, state.repeat, at)
    verdicts = {state.key: at for at, state in _offsets(path / VERDICTS, _RunState)}
    run_decoder, scored_decoder = msgspec.json.Decoder(Run), msgspec.json.Decoder(Scored)
    with ExitStack() as files:
        run_lines = files.enter_context((path / RUNS).open("rb")) if runs else BytesIO()
        verdict_lines = files.enter_context((path / VERDICTS).open("rb")) if verdicts else BytesIO()
        for key, place in sorted(runs.items(), key=lambda item: item[1]):
            run = _line_at(run_lines, place[-1], run_decoder)
            if run is None:
                continue
            scored = _line_at(verdict_lines, verdicts[key], scored_decoder) if key in verdicts else None
            yield run, scored if scored is not None and _belongs_to(scored, run) else None


def _line_at(stream: BinaryIO, at: int, decoder: msgspec.json.Decoder[Line]) -> Line | None:
    """Decode the line at an offset; None when it is damaged."""
    stream.seek(at)
    try:
        return decoder.decode(stream.readline())
    except _BROKEN:
        return None


def _offsets(path: Path, type: type[_State]) -> Iterator[tuple[int, _State]]:
    decoder, at = msgspec.json.Decoder(type), 0
    for line in _lines(path):
        with suppress(*_BROKEN):
            yield at, decoder.decode(line)
        at += len(line)
