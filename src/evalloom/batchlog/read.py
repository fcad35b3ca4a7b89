"""Read a batch, also while it is written and after a crash."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored, Verdict

FORMAT = 2
RUNS_MISSING = " [runs_missing]"
"""The end of the warning about a log with fewer runs than its batch had, or was to have."""
MANIFEST, RUNS, VERDICTS = "batch.json", "runs.jsonl", "verdicts.jsonl"


class Damage(Struct, frozen=True):
    """A line that cannot be read and is skipped, or, as line 0, what a file lost."""

    file: str
    line: int
    reason: str
    has_lost_runs: bool = False
    """Whether whole lines are gone, so that there is none to name."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding a damaged line."""

_LINE_START = re.compile(rb'\{"key":"')

Line = TypeVar("Line", bound="Run | Scored | _Position")


def manifest(path: Path) -> Batch:
    """Read the manifest of a batch."""
    file = path / MANIFEST
    try:
        text = file.read_bytes()
        document = msgspec.json.decode(text, type=dict)
        version = document.get("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            message = f"has format {version!r}, and this evalloom reads up to {FORMAT}. Upgrade evalloom"
            raise EvalloomError("newer_batch", f"{file.as_posix()}: {message}", exit_code=2)
        batch = msgspec.json.decode(text, type=Batch)
        if "format" not in document:
            raise msgspec.ValidationError("Object missing required field `format`")
        return batch
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if (path / RUNS).is_file():
            raise _bad_batch(path, reason) from None
        raise EvalloomError("no_batch", f"{file.as_posix()}: expected a batch, got: {reason}", exit_code=2) from None
    except _BROKEN as error:
        raise _bad_batch(path, str(error)) from None


def _bad_batch(path: Path, reason: str) -> EvalloomError:
    hint = f"'evalloom batches repair {path.name}' rebuilds it from the runs"
    return EvalloomError("bad_batch", f"{(path / MANIFEST).as_posix()}: is not a batch manifest: {reason}. {hint}", 2)


def line_number(file: Path, key: str) -> int:
    """Return the number of the last line of a key; 0 if it has none."""
    return max((number for number, _, run in _structs(file, Run, None) if run.key == key), default=0)


def warn_of_damage(damage: Iterable[Damage], path: Path, warn: Callable[[str], None]) -> None:
    """Warn once about each line of a log that cannot be read, and about what is missing."""
    for line in sorted(set(damage), key=lambda line: (line.file, line.line)):
        code = RUNS_MISSING if line.has_lost_runs else " [log_mended]"
        warn(f"{path.as_posix()}/{line}{code}")


def finished(path: Path, with_errors: bool = True, retried_codes: Collection[str] = ()) -> set[str]:
    """Return the keys of the runs that are done; runs with an error code of `retried_codes` are to be run again.

    Skipped and blocked runs are not done either, because checking again whether they can run costs nothing.
    """
    keys = set()
    # Decode whole runs: a damaged one does not count as done.
    for _, _, run in _structs(path / RUNS, Run, None):
        if _is_done(run, with_errors, retried_codes):
            keys.add(run.key)
        else:
            keys.discard(run.key)
    return keys


def _is_done(run: Run, with_errors: bool, retried_codes: Collection[str]) -> bool:
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


def runs(path: Path, damage: list[Damage] | None = None) -> Iterator[Run]:
    """Yield the last version of every run."""
    return _last_of_each(path / RUNS, Run, damage)


def _belongs_to(scored: Scored, run: Run) -> bool:
    """Whether verdicts belong to this version of the run: an earlier one may have been blocked or skipped."""
    is_blocked, is_skipped = scored.status == "blocked", scored.status == "skipped"
    return not run.error and is_blocked is bool(run.blocked) and is_skipped is bool(run.skipped)


def _last_of_each(path: Path, type: type[Line], damage: list[Damage] | None) -> Iterator[Line]:
    """Yield the last line of each key, in the order of the file. Lines that are appended meanwhile are ignored."""
    last: dict[str, int] = {}
    end, has_twins = 0, False
    for end, _, state in _structs(path, _Position, None):
        has_twins = has_twins or state.key in last
        last[state.key] = end
    if has_twins:
        # Where the last line of a key is damaged, the one before it counts, and only whole lines tell.
        last = {line.key: number for number, _, line in _structs(path, type, None)}
    for number, _, line in _structs(path, type, damage):
        if number > end:
            return
        if last.get(line.key, number) == number:
            yield line


class Part(Struct, frozen=True):
    """Some whole lines of the runs of a batch, from byte `start` to `end`; the first has the number `line`."""

    start: int
    end: int
    line: int = 1
    superseded: frozenset[tuple[int, str]] = frozenset()
    """The line and key of each run in it of which there is a later version."""


_WHOLE = Part(0, sys.maxsize)


def parts(path: Path, size: int) -> list[Part]:
    """Split the runs of a batch into parts of about `size` bytes. Lines that are appended later are in none."""
    file, decoder = path / RUNS, msgspec.json.Decoder(_Position)
    cuts, keys, at, number, has_twins = [(0, 1)], set[str](), 0, 0, False
    for number, line in enumerate(_lines(file), 1):
        if at - cuts[-1][0] >= size:
            cuts.append((at, number))
        at += len(line)
        try:
            keys.add(decoder.decode(line).key)
        except _BROKEN:
            has_twins = True  # the line may hold the whole of another
    superseded: list[tuple[int, str]] = []
    if has_twins or len(keys) < number:
        # Where the last line of a key is damaged, the one before it counts, and only whole lines tell.
        versions = [(line_number, run.key) for line_number, _, run in _structs(file, Run, None)]
        last = {key: line_number for line_number, key in versions}
        superseded = [(line_number, key) for line_number, key in versions if line_number < last[key]]
    ends = [*cuts[1:], (at, number + 1)]
    return [
        Part(start, end, line, frozenset(pair for pair in superseded if line <= pair[0] < next_line))
        for (start, line), (end, next_line) in zip(cuts, ends, strict=True)
    ]


def runs_of(path: Path, part: Part, damage: list[Damage]) -> Iterator[tuple[int, int, Run]]:
    """Yield the last versions of the runs in a part of a batch, each with its line and its offset."""
    for number, at, run in _structs(path / RUNS, Run, damage, part):
        if not part.superseded or (number, run.key) not in part.superseded:
            yield number, at, run


def run_at(path: Path, at: int) -> Run:
    """Return the run at an offset that `runs_of` gave."""
    with (path / RUNS).open("rb") as stream:
        stream.seek(at)
        return msgspec.json.decode(stream.readline(), type=Run)


def _structs(
    path: Path, type: type[Line], damage: list[Damage] | None, part: Part = _WHOLE
) -> Iterator[tuple[int, int, Line]]:
    """Yield the readable lines of a file, each with its number and its offset, and list the others."""
    decoder, at = msgspec.json.Decoder(type), part.start
    for number, line in enumerate(_lines(path, part), part.line):
        try:
            yield number, at, _with_time(decoder.decode(line))
        except _BROKEN as error:
            if damage is not None:
                damage.append(Damage(path.name, number, str(error)))
            # Where the end of the line before is damaged, both lines are one, and the second is whole.
            for match in _LINE_START.finditer(line, 1):
                if _is_inside(line, match.start()):
                    continue
                with suppress(*_BROKEN):
                    yield number, at + match.start(), _with_time(decoder.decode(line[match.start() :]))
        at += len(line)


def _is_inside(line: bytes, start: int) -> bool:
    """Whether the object at `start` may be a value inside the line: a record of a user may have a key like a run."""
    if line[start - 1 : start] not in (b":", b",", b"["):
        return False
    try:
        # One damaged byte after a whole line is the end of that line.
        msgspec.json.decode(line[: start - 1])
    except _BROKEN:
        return True
    return False


def _with_time(line: Line) -> Line:
    """Return a line; raise for a run whose start is not a time, which readers rely on."""
    if isinstance(line, Run) and line.started_at:
        try:
            datetime.fromisoformat(line.started_at).timestamp()
        except (ValueError, OverflowError, OSError):
            raise msgspec.ValidationError(f"Expected a time, got {line.started_at!r} - at `$.started_at`") from None
    return line


def _lines(path: Path, part: Part = _WHOLE) -> Iterator[bytes]:
    """Yield the complete lines of a file; the last one may still be in writing."""
    try:
        with path.open("rb") as stream:
            at = stream.seek(part.start)
            for line in stream:
                if at >= part.end:
                    return
                if line.endswith(b"\n"):
                    yield line
                at += len(line)
    except FileNotFoundError:
        return


def torn_line(path: Path) -> int:
    """Return the number of the last line of a file if a crash cut it off; 0 if the file ends with a whole line."""
    try:
        with path.open("rb") as stream:
            if not stream.seek(0, os.SEEK_END):
                return 0
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) == b"\n":
                return 0
            stream.seek(0)
            return sum(1 for _ in stream)
    except FileNotFoundError:
        return 0


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
        for _, at, run in _structs(self._file, Run, None):
            if _is_done(run, with_errors, retried_codes):
                self._offsets[run.key] = at
            else:
                self._offsets.pop(run.key, None)

    def get(self, key: str) -> Run | None:
        """Return the last version of a run."""
        at = self._offsets.get(key)
        if at is None:
            return None
        with self._file.open("rb") as stream:
            return _line_at(stream, _Place(RUNS, 0, at), msgspec.json.Decoder(Run), [])


class _Position(Struct, gc=False):
    """The key of a line, and the fields of a run that define its order. Reading these only takes half the time."""

    key: str
    profile: str = ""
    number: int = 0
    case_id: str = ""
    repeat: int = 0


class _Place(Struct, frozen=True, order=True, gc=False):
    """Where a line is: its file, its number, its offset."""

    file: str
    line: int
    at: int


def in_order(
    path: Path, profiles: list[str], damage: list[Damage] | None = None
) -> Iterator[tuple[Run, Scored | None]]:
    """Yield every run once, by profile, case and repeat. Only the places of lines are held in memory.

    `damage` is complete when all are yielded.
    """
    damage = [] if damage is None else damage
    runs: dict[str, tuple[int, int, str, int, _Place]] = {}
    rank = {name: number for number, name in enumerate(profiles)}
    for place, line in _last_places(path / RUNS, Run, damage):
        profile = rank.setdefault(line.profile, len(rank))
        # By the id too: in a log of another program, cases may share a number.
        runs[line.key] = (profile, line.number, line.case_id, line.repeat, place)
    verdicts = {line.key: place for place, line in _last_places(path / VERDICTS, Scored, damage)}
    run_decoder, scored_decoder = msgspec.json.Decoder(Run), msgspec.json.Decoder(Scored)
    with ExitStack() as files:
        run_lines = files.enter_context((path / RUNS).open("rb")) if runs else BytesIO()
        verdict_lines = files.enter_context((path / VERDICTS).open("rb")) if verdicts else BytesIO()
        for key, (*_, place) in sorted(runs.items(), key=lambda item: item[1]):
            run = _line_at(run_lines, place, run_decoder, damage)
            if run is not None:
                scored = _line_at(verdict_lines, verdicts[key], scored_decoder, damage) if key in verdicts else None
                yield run, scored if scored is not None and _belongs_to(scored, run) else None


def scored_runs(path: Path, profiles: list[str], damage: list[Damage] | None = None) -> Iterator[tuple[Run, Scored]]:
    """Yield every run with its score, as `in_order` does; a run without verdicts has no output, or is unscored."""
    for run, scored in in_order(path, profiles, damage):
        has_no_output = run.error or run.skipped or run.blocked
        yield run, scored or (without_output(run) if has_no_output else Scored(run.key, "unscored"))


def find_run(path: Path, key: str) -> tuple[Run, Scored] | None:
    """Return the last version of one run with its score, without decoding the others; None if there is none."""
    run = _last_line(path / RUNS, key, Run)
    if run is None:
        return None
    scored = _last_line(path / VERDICTS, key, Scored)
    if scored is not None and _belongs_to(scored, run):
        return run, scored
    has_no_output = run.error or run.skipped or run.blocked
    return run, without_output(run) if has_no_output else Scored(run.key, "unscored")


def _last_line(file: Path, key: str, type: type[Line]) -> Line | None:
    """Return the last whole line of a key."""
    # As our writer writes it; in a log of another program, a blank may follow the colon.
    starts = [b'"key":' + blank + msgspec.json.encode(key) for blank in (b"", b" ")]
    decoder = msgspec.json.Decoder(type)
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return None
    with stream:
        if not os.fstat(stream.fileno()).st_size:
            return None
        with mmap(stream.fileno(), 0, access=ACCESS_READ) as text:
            end = len(text)
            while (at := max(text.rfind(start, 0, end) for start in starts)) >= 0:
                line_end = text.find(b"\n", at)
                with suppress(*_BROKEN):
                    line = decoder.decode(text[text.rfind(b"\n", 0, at) + 1 : line_end if line_end >= 0 else len(text)])
                    # Texts of users may contain the same words.
                    if line.key == key:
                        return _with_time(line)
                end = at
    return None


def without_output(run: Run) -> Scored:
    """Return the score of a run without an output: it met an error, was skipped or was blocked."""
    if run.error:
        return Scored(run.key, "error", step=_broken_step(run) if run.trace else "")
    if run.skipped:
        reason = run.skipped.removeprefix("conditions: ")
        verdict = Verdict("conditions", "conditions", "", "skipped", reason=reason)
    else:
        verdict = Verdict("depends_on", "depends_on", "", "blocked", reason=run.blocked)
    return Scored(run.key, verdict.status, verdicts=[verdict])


def _broken_step(run: Run) -> str:
    from evalloom.matchers.blame import broken_step  # deferred: it imports all matchers

    return broken_step(run.trace)


def _last_places(path: Path, type: type[Run] | type[Scored], damage: list[Damage]) -> Iterator[tuple[_Place, Any]]:
    """Yield the lines of a file with their places; the last one of a key counts, if it is whole."""
    keys: set[str] = set()
    found: list[Damage] = []
    for number, at, line in _structs(path, _Position, found):
        if line.key in keys:
            break
        keys.add(line.key)
        yield _Place(path.name, number, at), line
    else:
        damage += found
        return
    # Where the last line of a key is damaged, the one before it counts, and only whole lines tell.
    yield from ((_Place(path.name, number, at), line) for number, at, line in _structs(path, type, damage))


def _line_at(stream: BinaryIO, place: _Place, decoder: msgspec.json.Decoder[Line], damage: list[Damage]) -> Line | None:
    """Decode the line at a place; None when it is damaged."""
    stream.seek(place.at)
    try:
        return _with_time(decoder.decode(stream.readline()))
    except _BROKEN as error:
        damage.append(Damage(place.file, place.line, str(error)))
        return None
