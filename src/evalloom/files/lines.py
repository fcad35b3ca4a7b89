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
    number, rest = 1, b""
    try:
        for chunk in read_chunks(source):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if number in wanted:
                    found[number] = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
                number += 1
            if number > max(wanted):
                return found
    except Refused:
        return found
    if number in wanted:
        found[number] = rest[:_LONGEST_LINE].decode("utf-8", "replace")
    return found
