"""Baselines: the results of a batch in one small file that can be committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated
from unicodedata import category

import msgspec
from msgspec import Meta, Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch, Status
from evalloom.core.text import did_you_mean, quote
from evalloom.files.write import atomic_writer

BASELINES = Path(".evalloom") / "baselines"
BASELINE_FORMAT = 2
SUFFIX = ".jsonl"

_LONGEST_NAME = 100
_NAME_BYTES = 240
"""File systems take names of 255 bytes, and a Chinese character is three."""
_LONGEST_LINE = 16 * 1024 * 1024
_RESERVED = ("latest", "last")
"""Names that mean a batch."""
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

MOST = 2**53
"""The largest count in a file: beyond it, floats are not exact."""
_Count = Annotated[int, Meta(ge=0, le=MOST)]
_Amount = Annotated[float, Meta(ge=0, le=MOST)]
_Score = Annotated[float, Meta(ge=-MOST, le=MOST)]
_Key = tuple[str, str, int, int]


class BaselineRun(Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one run. `latency_s` is absent for a cached answer."""

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
    """A digest of the case's record, to recognize edited cases."""
    position: int = 0
    is_unnamed: bool = False
    """As in `Run`."""
    reason: str = ""
    """Why it did not pass. Not stored in the file, because it may quote private text."""
    notes: tuple[str, ...] = ()
    """What may have caused that. Not stored in the file either."""


class Baseline(Struct, frozen=True, kw_only=True):
    """The first line of a baseline: its name, its batch, and the number of runs that follow."""

    format: int = BASELINE_FORMAT
    name: str
    saved_at: str
    runs: _Count
    batch: Batch


def checked_name(name: str) -> str:
    """Return a name that is safe as a file name, or raise a usage error."""
    if name in _RESERVED:
        raise usage_error("bad_baseline_name", f"{name!r} means the newest batch. Give the baseline another name")
    is_plain = all(char in "_.-" or category(char)[0] in "LMN" for char in name)
    if not is_plain or not name or name[0] in ".-" or len(name) > _LONGEST_NAME or len(name.encode()) > _NAME_BYTES:
        expected = f"expected up to {_LONGEST_NAME} letters, digits, '_', '.' and '-', not first '.' or '-'"
        raise usage_error("bad_baseline_name", f"the name of a baseline: {expected}, got {quote(name)}")
    return name


def save_baseline(baseline: Baseline, runs: Iterable[BaselineRun], folder: Path = BASELINES) -> Path:
    """Write a baseline atomically; one with the same name is replaced."""
    file = folder / (checked_name(baseline.name) + SUFFIX)
    encoder = msgspec.json.Encoder()
    with atomic_writer(file) as stream:
        stream.write(encoder.encode(baseline) + b"\n")
        stream.writelines(encoder.encode(run) + b"\n" for run in runs)
    return file


def baselines(
    folder: Path = BASELINES, warn: Callable[[str], None] = lambda message: None
) -> Iterator[tuple[Path, Baseline]]:
    """Yield the readable baselines by name, and warn about the others."""
    for file in _files(folder):
        try:
            head, lines = read_baseline(file), sum(1 for _ in _lines(file))
            _check_count(file, head.runs, lines - 1)
            yield file, head
        except EvalloomError as error:
            warn(str(error))


def has_baseline(name: str, folder: Path = BASELINES) -> bool:
    """Whether a baseline of this name exists."""
    return name in {file.stem for file in _files(folder)}


def find_baseline(name: str, folder: Path = BASELINES) -> Path:
    """Return the file of a baseline, or raise a usage error."""
    names = [file.stem for file in _files(folder)]
    if name not in names:
        saved = "'evalloom baseline list' shows what there is" if names else "'evalloom baseline save NAME' makes one"
        hint = did_you_mean(name, names) or f". {saved}"
        raise usage_error("no_baseline", f"there is no baseline {quote(name)} in {folder.as_posix()}{hint}")
    return folder / (name + SUFFIX)


def remove_baseline(file: Path) -> None:
    """Remove a baseline; its batch stays."""
    try:
        file.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("cannot_write", f"{file.as_posix()}: cannot be removed: {reason}") from None


def read_baseline(file: Path) -> Baseline:
    """Read the first line of a baseline."""
    for _, line in _lines(file):
        return _head(file, line)
    raise _damaged(file, 1, "the file is empty")


def baseline_runs(file: Path) -> Iterator[BaselineRun]:
    """Yield the runs of a baseline, the repeats of a case next to each other."""
    return _read_runs(file) if _is_grouped(file) else iter(sorted(_read_runs(file), key=_key_of))


def _is_grouped(file: Path) -> bool:
    """Whether the repeats of each case are next to each other. Raises when a run is there twice."""
    cases: set[tuple[str, str, int]] = set()
    runs: set[_Key] = set()
    last, is_grouped = None, True
    for number, run in enumerate(_read_runs(file), 2):
        key = _key_of(run)
        if key in runs:
            who = f"case {quote(run.case_id)}, profile {quote(run.profile)}, repeat {run.repeat}"
            raise _damaged(file, number, f"this run is there twice: {who}")
        runs.add(key)
        if key[:3] != last:
            last = key[:3]
            is_grouped = is_grouped and last not in cases
            cases.add(last)
    return is_grouped


def _key_of(run: BaselineRun) -> _Key:
    return run.profile, run.case_id, run.occurrence, run.repeat


def _read_runs(file: Path) -> Iterator[BaselineRun]:
    """Yield the runs in the order of the lines."""
    decoder, expected, count = msgspec.json.Decoder(BaselineRun), 0, 0
    for number, line in _lines(file):
        if number == 1:
            expected = _head(file, line).runs
            continue
        try:
            yield decoder.decode(line)
        except _BROKEN as error:
            raise _damaged(file, number, str(error)) from None
        count += 1
    _check_count(file, expected, count)


def _check_count(file: Path, expected: int, count: int) -> None:
    if count != expected:
        raise _damaged(file, count + 2, f"expected {expected} runs, got {count}, so lines were cut off or added")


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob(f"*{SUFFIX}") if file.is_file() and not file.name.startswith("."))


def _head(file: Path, line: bytes) -> Baseline:
    try:
        version = msgspec.json.decode(line, type=dict).get("format")
        if isinstance(version, int) and version > BASELINE_FORMAT:
            message = f"has format {version}, and this evalloom reads up to {BASELINE_FORMAT}. Upgrade evalloom"
            raise EvalloomError("newer_baseline", f"{file.as_posix()}: {message}")
        # A copy of the file is a baseline with the name of that file.
        return msgspec.structs.replace(msgspec.json.decode(line, type=Baseline), name=file.stem)
    except _BROKEN as error:
        raise _damaged(file, 1, str(error)) from None


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file; one of a gigabyte is refused before it is in memory."""
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE + 1), b""), 1):
                if len(line) > _LONGEST_LINE:
                    raise _damaged(file, number, f"has a line of more than {_LONGEST_LINE >> 20} MB")
                yield number, line
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EvalloomError("cannot_read", f"{file.as_posix()}: cannot be read: {reason}") from None


def _damaged(file: Path, line: int, reason: str) -> EvalloomError:
    return EvalloomError("bad_baseline", f"{file.as_posix()}:{line}: cannot read the baseline: {reason}. Save it again")
