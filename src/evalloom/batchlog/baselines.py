"""Baselines: what a batch came to, kept apart from it in one small file that can be committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO
from unicodedata import category

import msgspec
from msgspec import Meta, Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch, Status
from evalloom.core.text import did_you_mean, quote
from evalloom.files.write import atomic_writer

BASELINES = Path(".evalloom") / "baselines"
BASELINE_FORMAT = 1
SUFFIX = ".jsonl"

_LONGEST_NAME = 100
_NAME_BYTES = 240
"""File systems take names of 255 bytes, and a Chinese character is three."""
_LONGEST_LINE = 16 * 1024 * 1024
_TAKEN = ("latest", "last")
"""Names that mean a batch wherever a baseline or a batch may stand."""
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

MOST = 2**53
"""The largest count that a file may hold: beyond it a sum is no whole number any more."""
_Count = Annotated[int, Meta(ge=0, le=MOST)]
_Amount = Annotated[float, Meta(ge=0, le=MOST)]
_Score = Annotated[float, Meta(ge=-MOST, le=MOST)]
_Key = tuple[str, str, int, int]


class Kept(Struct, frozen=True, omit_defaults=True, gc=False):
    """What one run came to. `latency_s` is absent when no llm or target was waited for, as with a cached answer."""

    case_id: str
    status: Status
    profile: str = ""
    occurrence: _Count = 1
    repeat: _Count = 0
    score: _Score | None = None
    tags: tuple[str, ...] = ()
    checks: tuple[tuple[str, Status, _Score | None], ...] = ()
    """The name, the status and the score of each check."""
    latency_s: _Amount | None = None
    tokens: _Count = 0
    cost: _Amount | None = None
    digest: str = ""
    """Of the case's record, so that a case that was edited is known."""
    reason: str = ""
    """Why it did not pass. Not kept in the file: it may quote what people wrote."""
    notes: tuple[str, ...] = ()
    """What may have caused that. Not kept in the file either."""


class Baseline(Struct, frozen=True, kw_only=True):
    """The first line of a baseline: its name, the batch it was made of, and how many runs follow."""

    format: int = BASELINE_FORMAT
    name: str
    saved_at: str
    runs: _Count
    batch: Batch


def checked_name(name: str) -> str:
    """A name that may become a file name, or a usage error."""
    if name in _TAKEN:
        raise usage_error("bad_baseline_name", f"{name!r} means the newest batch. Give the baseline another name")
    is_plain = all(char in "_.-" or category(char)[0] in "LMN" for char in name)
    if not is_plain or not name or name[0] in ".-" or len(name) > _LONGEST_NAME or len(name.encode()) > _NAME_BYTES:
        expected = f"expected up to {_LONGEST_NAME} letters, digits, '_', '.' and '-', not first '.' or '-'"
        raise usage_error("bad_baseline_name", f"the name of a baseline: {expected}, got {quote(name)}")
    return name


def save_baseline(baseline: Baseline, runs: Iterable[Kept], folder: Path = BASELINES) -> Path:
    """Writes a baseline whole or not at all; one of that name is replaced."""
    file = folder / (checked_name(baseline.name) + SUFFIX)
    encoder = msgspec.json.Encoder()
    with atomic_writer(file) as stream:
        stream.write(encoder.encode(baseline) + b"\n")
        stream.writelines(encoder.encode(run) + b"\n" for run in runs)
    return file


def baselines(
    folder: Path = BASELINES, warn: Callable[[str], None] = lambda message: None
) -> Iterator[tuple[Path, Baseline]]:
    """The baselines that can be read, by name; about the others there is a warning."""
    for file in _files(folder):
        try:
            head, lines = read_baseline(file), sum(1 for _ in _lines(file))
            _check_count(file, head.runs, lines - 1)
            yield file, head
        except EvalloomError as fault:
            warn(str(fault))


def has_baseline(name: str, folder: Path = BASELINES) -> bool:
    """Whether there is a baseline of this name."""
    return name in {file.stem for file in _files(folder)}


def find_baseline(name: str, folder: Path = BASELINES) -> Path:
    """The file of the baseline of this name."""
    there = [file.stem for file in _files(folder)]
    if name not in there:
        saved = "'evalloom baseline list' shows what there is" if there else "'evalloom baseline save NAME' makes one"
        hint = did_you_mean(name, there) or f". {saved}"
        raise usage_error("no_baseline", f"there is no baseline {quote(name)} in {folder.as_posix()}{hint}")
    return folder / (name + SUFFIX)


def remove_baseline(file: Path) -> None:
    """Removes a baseline; the batch that it was made of stays."""
    try:
        file.unlink()
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("cannot_write", f"{file.as_posix()}: cannot be removed: {reason}") from None


def read_baseline(file: Path) -> Baseline:
    """The first line of a baseline."""
    for _, line in _lines(file):
        return _head(file, line)
    raise _damaged(file, 1, "the file is empty")


def kept_runs(file: Path) -> Iterator[Kept]:
    """Every run of a baseline, the repeats of a case one after the other: as they were saved, or else sorted."""
    return _kept(file) if _is_grouped(file) else iter(sorted(_kept(file), key=_key_of))


def _is_grouped(file: Path) -> bool:
    """Whether the repeats of each case stand together, which a hand may have changed; no run may stand twice."""
    cases: set[tuple[str, str, int]] = set()
    runs: set[_Key] = set()
    last, is_grouped = None, True
    for number, run in enumerate(_kept(file), 2):
        key = _key_of(run)
        if key in runs:
            who = f"case {quote(run.case_id)}, profile {quote(run.profile)}, repeat {run.repeat}"
            raise _damaged(file, number, f"this run stands here twice: {who}")
        runs.add(key)
        if key[:3] != last:
            last = key[:3]
            is_grouped = is_grouped and last not in cases
            cases.add(last)
    return is_grouped


def _key_of(run: Kept) -> _Key:
    return run.profile, run.case_id, run.occurrence, run.repeat


def _kept(file: Path) -> Iterator[Kept]:
    """Every run of a baseline in the order of the lines."""
    decoder, expected, found = msgspec.json.Decoder(Kept), 0, 0
    for number, line in _lines(file):
        if number == 1:
            expected = _head(file, line).runs
            continue
        try:
            yield decoder.decode(line)
        except _BROKEN as fault:
            raise _damaged(file, number, str(fault)) from None
        found += 1
    _check_count(file, expected, found)


def _check_count(file: Path, expected: int, found: int) -> None:
    if found != expected:
        raise _damaged(file, found + 2, f"expected {expected} runs, got {found}, so lines were cut off or added")


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob(f"*{SUFFIX}") if file.is_file() and not file.name.startswith("."))


def _head(file: Path, line: bytes) -> Baseline:
    try:
        version = msgspec.json.decode(line, type=dict).get("format")
        if isinstance(version, int) and version > BASELINE_FORMAT:
            message = f"has format {version}, and this evalloom reads up to {BASELINE_FORMAT}. Upgrade evalloom"
            raise EvalloomError("newer_baseline", f"{file.as_posix()}: {message}")
        # A copy of the file is a baseline of its own, by the name that it has now.
        return msgspec.structs.replace(msgspec.json.decode(line, type=Baseline), name=file.stem)
    except _BROKEN as fault:
        raise _damaged(file, 1, str(fault)) from None


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers. One of a gigabyte is refused before it is in memory."""
    try:
        with file.open("rb") as stream:
            yield from enumerate(iter(lambda: _line(stream), b""), 1)
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("cannot_read", f"{file.as_posix()}: cannot be read: {reason}") from None
    except _TooLong:
        raise _damaged(file, 0, f"has a line of more than {_LONGEST_LINE >> 20} MB") from None


class _TooLong(Exception):
    """A line that no baseline has."""


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise _TooLong
    return line


def _damaged(file: Path, line: int, reason: str) -> EvalloomError:
    where = f"{file.as_posix()}:{line}" if line else file.as_posix()
    return EvalloomError("bad_baseline", f"{where}: is no baseline that can be read: {reason}. Save it again")
