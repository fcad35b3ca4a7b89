"""Records requests and answers in a file, and replays them offline.

One JSON object per line: `{"version": 1, "llm": …, "request": …, "response": …}`, or `"error"` where the call failed
for good. Headers and keys are not part of a request, so they are not written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.model import Llm, Request, Response
from evalloom.core.text import quote
from evalloom.llms.cache import digest
from evalloom.llms.echo import prompt_text

VERSION = 1
_EXPLAINED = 20
"""How many missing requests are compared with the recorded ones; further ones would not help the reader."""
_COMPARED = 500
"""How many recorded requests are compared with a missing one."""


class RecordedFailure(Struct, frozen=True):
    """A call that failed for good."""

    code: str
    message: str


class Entry(Struct, frozen=True):
    """One line of a cassette: a request, and its response or failure."""

    version: int
    llm: str
    request: Request
    response: Response | None = None
    error: RecordedFailure | None = None


_decode = msgspec.json.Decoder(Entry).decode


class Recorder:
    """An llm whose requests and answers are written to a file, each at once. Several may write to one file."""

    def __init__(self, llm: Llm, path: Path, name: str = "", redact: Callable[[str], str] = lambda text: text) -> None:
        self._llm = llm
        self._path = path
        self._name = name
        self._redact = redact
        self._file = self._open()

    async def __call__(self, request: Request) -> Response:
        """Return the answer once it is written."""
        try:
            response = await self._llm(request)
        except CallError as error:
            self._write(Entry(VERSION, self._name, request, error=RecordedFailure(error.code, error.message)))
            raise
        self._write(Entry(VERSION, self._name, request, response))
        return response

    async def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            _drop_torn_line(file)
        except OSError as error:
            raise self._unwritable(error) from None
        return file

    def _write(self, entry: Entry) -> None:
        line = self._redact(_line(entry)).encode() + b"\n"
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the disk is full")
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> EvalloomError:
        reason = (error.strerror or str(error)).lower()
        return EvalloomError("cannot_write", f"{self._path.as_posix()}: cannot be written: {reason}")


def _line(entry: Entry) -> str:
    try:
        return msgspec.json.encode(entry).decode()
    except (TypeError, ValueError):
        # Half a surrogate pair, or what a function under test put into its messages, is written as far as possible.
        plain = msgspec.to_builtins(entry, builtin_types=(object,))
        return json.dumps(plain, ensure_ascii=False, default=repr).encode("utf-8", "replace").decode()


def _drop_torn_line(file: int) -> None:
    """Remove the incomplete last line of a killed process, so that the next line stands alone."""
    end = size = os.fstat(file).st_size
    while end and (block := os.pread(file, min(end, 65536), max(0, end - 65536))):
        if (at := block.rfind(b"\n")) >= 0:
            end += at + 1 - len(block)
            break
        end -= len(block)
    if end != size:
        os.ftruncate(file, end)


class Player:
    """Answers from a cassette: the n-th time with the n-th answer to the same request, and then with the last one.

    Only answers of the llm of this name count; without a name, all do.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        self._path = path
        self._name = name
        self._entries: dict[bytes, list[Entry]] = {}
        self._turns: dict[bytes, int] = {}
        self._explained = 0
        entries = read(path)
        self._names = sorted({entry.llm for entry in entries})
        for entry in entries:
            if not name or entry.llm == name:
                self._entries.setdefault(digest(entry.request), []).append(entry)

    async def __call__(self, request: Request) -> Response:
        """Return the recorded answer, or raise the recorded failure."""
        key = digest(request)
        if (entries := self._entries.get(key)) is None:
            raise CallError(
                "not_recorded", f"{self._path.as_posix()}: {self._explain_missing(request)}. Record it again"
            )
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        entry = entries[min(turn, len(entries) - 1)]
        if entry.response is not None:
            return entry.response
        failure = entry.error or RecordedFailure("not_recorded", f"{self._path.as_posix()}: the entry has no response")
        raise CallError(failure.code, failure.message)

    def _explain_missing(self, request: Request) -> str:
        if not self._entries:
            names = f"only of {', '.join(map(repr, self._names))}" if self._names else "nothing at all"
            return f"nothing is recorded of llm {self._name!r}, {names}"
        self._explained += 1
        if self._explained > _EXPLAINED:
            return "this request is not recorded"
        recorded = [entries[0].request for entries in self._entries.values()][:_COMPARED]
        return (
            f"this request is not recorded; the nearest one differs: {difference(nearest(request, recorded), request)}"
        )


def nearest(request: Request, recorded: list[Request]) -> Request:
    """Return the recorded request that is most similar to a request."""
    from rapidfuzz.fuzz import ratio

    text = prompt_text(request)[:2000]

    def similarity(candidate: Request) -> float:
        same: int = sum(getattr(candidate, name) == getattr(request, name) for name in ("params", "answer", "tools"))
        return same + float(ratio(prompt_text(candidate)[:2000], text))

    return max(recorded, key=similarity)


def difference(recorded: Request, request: Request) -> str:
    """Describe the first difference of a request from a recorded one, in a line."""
    before, after = prompt_text(recorded), prompt_text(request)
    if before != after:
        at = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), None)
        at = min(len(before), len(after)) if at is None else at
        start = max(0, at - 10)
        old, new = quote(before[start : at + 30]), quote(after[start : at + 30])
        return f"the prompt at character {at + 1}, recorded {old}, now {new}"
    for name in sorted(recorded.params.keys() | request.params.keys()):
        old, new = quote(recorded.params.get(name)), quote(request.params.get(name))
        if old != new:
            return f"{name}, recorded {old}, now {new}"
    for name in ("repeat", "answer", "tools", "messages"):
        old, new = quote(getattr(recorded, name)), quote(getattr(request, name))
        if getattr(recorded, name) != getattr(request, name):
            return f"{name}, recorded {old}, now {new}"
    return "in the form of its values only"


def read(path: Path) -> list[Entry]:
    """Return the entries of a cassette without an incomplete last line. Raises bad_cassette with all errors in it."""
    shown = path.as_posix()
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise usage_error("bad_cassette", f"{shown}: expected a recording, but it cannot be read: {reason}") from None
    entries, errors = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number < len(lines):
                errors.append(f"{shown}:{number}: expected a recorded request: {error}")
            continue
        if entry.version > VERSION:
            errors.append(f"{shown}:{number}: expected version {VERSION}, got {entry.version}. Update evalloom")
        entries.append(entry)
    if errors:
        raise usage_error("bad_cassette", "\n".join(errors[:20]))
    return entries
