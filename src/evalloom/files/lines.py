"""Single lines of a file, to show them beside a finding."""

from __future__ import annotations

from collections.abc import Collection

from evalloom.files.rows import Refused
from evalloom.files.source import read_chunks, source_of

_LARGEST_FILE = 64 * 1024 * 1024
_LONGEST_LINE = 20_000


def pick_lines(file: str, wanted: Collection[int]) -> dict[int, str]:
    """The text of some lines; none for stdin and for files so large that reading them again would be felt."""
    source = source_of(file)
    if source.path is None or not source.path.is_file() or source.path.stat().st_size > _LARGEST_FILE:
        return {}
    found: dict[int, str] = {}
    number, line, read = 1, b"", 0
    try:
        for chunk in read_chunks(source):
            first, *others = chunk.split(b"\n")
            line += first[: _LONGEST_LINE - len(line)]
            for other in others:
                _keep(found, wanted, number, line)
                number, line = number + 1, other[:_LONGEST_LINE]
            read += len(chunk)
            if number > max(wanted, default=0) or read > _LARGEST_FILE:
                break
    except Refused:
        pass
    _keep(found, wanted, number, line)
    return found


def _keep(found: dict[int, str], wanted: Collection[int], number: int, line: bytes) -> None:
    if number in wanted:
        found[number] = line.decode("utf-8", "replace").rstrip("\r")
