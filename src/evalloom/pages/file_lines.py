"""The lines of a file, some at a time: a file of any size is shown without being read into memory."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from evalloom.files.rows import Refused
from evalloom.files.source import CHUNK, Source, is_plain, read_chunks

_BLOCK = 1024 * 1024
_MOST_UNPACKED = 256 * 1024 * 1024
"""Of a file that cannot be read from the middle, only so many bytes of text are shown."""
_MOST_INDEXES = 32


class Line(Struct, frozen=True):
    """A line with its number; `rest` is the number of bytes that are left out."""

    number: int
    text: str
    rest: int = 0


class LinePage(Struct, frozen=True):
    """Some lines of a file."""

    lines: list[Line]
    total: int | None
    """The number of lines; None if only reading the whole file would tell."""
    refusal: str = ""
    """Why the file cannot be shown: it is not text, or in another encoding."""


_Stamp = tuple[str, int, int]
_Index = tuple[list[int], int]
"""The number of line breaks before each block of a file, and the number of lines."""
_indexes: OrderedDict[_Stamp, _Index] = OrderedDict()
_lock = threading.Lock()


def read_page(source: Source, first: int, count: int, longest: int) -> LinePage:
    """Return `count` lines from the line `first` on; of each at most `longest` bytes."""
    try:
        next(read_chunks(source), b"")  # says why, if it is not text
        if source.path is not None and is_plain(source):
            breaks, all_lines = _index(source.path)
            count = min(count, all_lines + 1 - first)
            return LinePage(list(_read_plain(source.path, breaks, first, count, longest)), all_lines)
        lines: list[Line] = []
        total: int | None = None
        for line in _read_stream(source, longest):
            if line is None or line.number >= first + count:
                break
            if line.number >= first:
                lines.append(line)
        else:
            total = lines[-1].number if lines else None
        return LinePage(lines, total)
    except Refused as error:
        return LinePage([], 0, error.problem.message)
    except OSError as error:
        return LinePage([], 0, f"cannot be read: {(error.strerror or str(error)).lower()}")


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return _index(path)[1]


def _index(path: Path) -> _Index:
    status = path.stat()
    stamp = (str(path), status.st_size, status.st_mtime_ns)
    with _lock:
        if stamp in _indexes:
            _indexes.move_to_end(stamp)
            return _indexes[stamp]
    breaks, counted, last = [], 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            breaks.append(counted)
            counted += block.count(b"\n")
            last = block[-1:]
    index = (breaks, counted + (last != b"\n"))
    with _lock:
        _indexes[stamp] = index
        while len(_indexes) > _MOST_INDEXES:
            _indexes.popitem(last=False)
    return index


def _read_plain(path: Path, breaks: list[int], first: int, count: int, longest: int) -> Iterator[Line]:
    """Yield lines of a file that can be read from the middle."""
    if count <= 0:
        return
    # The last block with fewer line breaks before it than there are before the line.
    block = max(bisect_left(breaks, first - 1) - 1, 0)
    with path.open("rb") as stream:
        stream.seek(block * _BLOCK)
        for _ in range(first - 1 - breaks[block]):
            _skip_line(stream)
        for number in range(first, first + count):
            piece = stream.readline(longest)
            rest = _skip_line(stream) if piece and not piece.endswith(b"\n") and len(piece) >= longest else 0
            yield _line(number, piece, rest)


def _skip_line(stream: IO[bytes]) -> int:
    """Move to the next line; return the number of bytes before it, without the line break."""
    skipped = 0
    while piece := stream.readline(CHUNK):
        skipped += len(piece.rstrip(b"\r\n")) if piece.endswith(b"\n") else len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _read_stream(source: Source, longest: int) -> Iterator[Line | None]:
    """Yield the lines of a file that is compressed or not UTF-8; None where no more is read."""
    number, line, rest, size = 1, b"", 0, 0
    for chunk in read_chunks(source):
        first, *others = chunk.split(b"\n")
        kept = first[: longest - len(line)]
        line, rest = line + kept, rest + len(first) - len(kept)
        for following in others:
            yield _line(number, line, rest)
            number, line, rest = number + 1, following[:longest], max(0, len(following) - longest)
        size += len(chunk)
        if size > _MOST_UNPACKED:
            yield None
    if line:
        yield _line(number, line, rest)


def _line(number: int, text: bytes, rest: int) -> Line:
    return Line(number, text.decode("utf-8", "replace").rstrip("\r\n"), rest)
