"""Samples result files before and while they are copied: finds field names, and detects missed ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.hop.contract import read_contract
from evalloom.hop.dialect import is_view_row, normalize_audit, normalize_input
from evalloom.hop.results.rows import ANY, EXACT, EXPECTED, Names, can_select, expected_of

_SAMPLE, _SAMPLE_EVERY = 8 * 1024, 8 * 1024**2
_TAIL = 1024**2
_SCAN = 256 * 1024
_NEEDLE = f'"{EXPECTED}'.encode()


def _is_cut(path: Path) -> bool:
    """Return whether the last line is incomplete: still being written, or truncated by a crash."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 1))
            if stream.read(1) in (b"\n", b""):
                return False
            stream.seek(max(0, size - _TAIL))
            tail = stream.read()
    except OSError:
        return True
    try:
        msgspec.json.decode(tail[tail.rfind(b"\n") + 1 :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


class FileSample(Struct, frozen=True):
    """A sample of a file: field names, the fastest strategy that may work, and some values of each field."""

    names: Names
    strategy: str
    values: dict[str, list[Any]] = {}


def sample_file(path: Path, strategy: str) -> FileSample:
    """Sample some lines of a file. `strategy` is the one that worked before, if any."""
    if strategy == EXACT or _is_cut(path):
        return FileSample(Names(), EXACT)
    fields: dict[str, list[Any]] = {}
    expected: Record = {}
    for record in _sample(path):
        audit = normalize_audit(record)
        expected |= expected_of(normalize_input(record))
        if is_view_row(record) or None in expected.values():
            strategy = ANY
        if audit is not None and isinstance(audit["result"], dict):
            has_failed = audit["error"] or audit["stats"].get("status") == "ERROR"
            for name, value in audit["result"].items():
                # A failed result contributes field names, but no values.
                fields.setdefault(name, []).extend([] if has_failed else [value])
        elif audit is not None and audit["result"] is not None:
            return FileSample(Names(), EXACT)
    return FileSample(selectable(fields, expected), strategy, fields)


def contract_names(folder: Path) -> Names:
    """Return the output fields of the task's contract, if there is one beside the folder."""
    path = folder.parent / "Hoplet" / "metainfo.md"
    if not path.is_file():
        return Names()
    try:
        outputs = read_contract(str(path)).outputs
    except EvalloomError:
        # The contract is only a hint here; other commands report its errors.
        return Names()
    return selectable(outputs, ())


def _sample(path: Path) -> Iterator[Record]:
    with suppress(OSError), path.open("rb") as stream:
        for start in range(0, os.fstat(stream.fileno()).st_size, _SAMPLE_EVERY):
            stream.seek(start)
            lines = stream.read(_SAMPLE).split(b"\n")
            for line in lines[1 if start else 0 :]:
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    record = msgspec.json.decode(line)
                    if isinstance(record, dict):
                        yield record


def selectable(fields: Iterable[str], expected: Iterable[str]) -> Names:
    """Return the names that SQL can select. DuckDB ignores case in column names."""
    by_fold = {name.casefold(): name for name in expected if can_select(name)}
    return Names([name for name in fields if can_select(name)], list(by_fold.values()))


def joined(groups: Iterable[Names]) -> Names:
    """Merge names in a deterministic order."""
    every = list(groups)
    fields = dict.fromkeys(name for names in every for name in names.fields)
    return selectable(sorted(fields), sorted({name for names in every for name in names.expected}))


def occurrences(path: Path, needle: bytes = _NEEDLE) -> int:
    """Count the occurrences of bytes in a file."""
    count, keep = 0, 0
    buffer = bytearray(_SCAN)
    view = memoryview(buffer)
    overlap = len(needle) - 1
    with suppress(OSError), path.open("rb", buffering=0) as stream:
        while read := stream.readinto(view[keep:]):
            end = keep + read
            count += buffer.count(needle, 0, end)
            keep = min(overlap, end)
            buffer[:keep] = buffer[end - keep : end]
    return count


def may_hide_results(path: Path, has_results: bool) -> bool:
    """Return whether rows that look like cases may be results with a null value, which a declared column hides."""
    return has_results or any(occurrences(path, mark) for mark in (b'"hop_result"', b'"hop_stats"'))


def expected_names(path: Path) -> set[str]:
    """Return every `expected_<field>` in a file, without the prefix."""
    pattern = re.compile(rb'"' + EXPECTED.encode() + rb'([^"\\]+)"')
    names: set[bytes] = set()
    with suppress(OSError), path.open("rb") as stream:
        for line in stream:
            names.update(pattern.findall(line))
    return {name.decode(errors="replace") for name in names}
