"""Reads single results from the JSONL files, because the copy does not hold all their fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalloom.core.model import Record
from evalloom.hop.dialect import inputs_of, normalize_audit
from evalloom.hop.results.parts import Index, read_records
from evalloom.hop.results.rows import expected_of


class Spot(NamedTuple):
    """The position of a result: its file, and its row in the part."""

    file: str
    part: int
    row: int
    line: int | None


def read_back(folder: Path, index: Index, spots: Iterable[Spot]) -> dict[Spot, Record]:
    """Return the records at some positions with their line numbers; skip positions that no longer exist."""
    records: dict[Spot, Record] = {}
    for (file, part), wanted in groupby(sorted(spots, key=lambda spot: spot[:3]), key=lambda spot: spot[:2]):
        source = next(candidate for candidate in index.parts[part].sources if candidate.name == file)
        read = _exact if index.parts[part].exact else _plain
        records |= read(folder / file, {spot.row - source.first: spot for spot in wanted})
    return records


def _exact(path: Path, wanted: dict[int, Spot]) -> dict[Spot, Record]:
    """Return the n-th objects of a file; one line may contain several."""
    objects = ((line, record) for line, record in read_records(path) if isinstance(record, dict))
    return _chosen(objects, wanted)


def _plain(path: Path, wanted: dict[int, Spot]) -> dict[Spot, Record]:
    with suppress(FileNotFoundError):
        return _chosen(lines_of(path), wanted)
    return {}


def _chosen(records: Iterable[tuple[int, Record | None]], wanted: dict[int, Spot]) -> dict[Spot, Record]:
    return {
        wanted[number]: {"line": line, "record": record}
        for number, (line, record) in enumerate(islice(records, max(wanted) + 1))
        if number in wanted and record is not None
    }


def lines_of(path: Path) -> Iterator[tuple[int, Record | None]]:
    """Yield the lines that are not blank, as DuckDB counts rows; None for a line that is not an object."""
    with path.open("rb") as stream:
        for line, text in enumerate(stream, 1):
            if not text.isspace():
                yield line, _decoded(text)


def _decoded(text: bytes) -> Record | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            # Python writes NaN, and DuckDB reads it.
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def row_details(entry: Record | None) -> Record:
    """Return the fields of a result that only the file has: `line, result, expected, input, execution_path`."""
    audit = normalize_audit(entry["record"]) if entry else None
    if entry is None or audit is None:
        return {"line": None, "result": None, "expected": {}, "input": {}, "execution_path": []}
    path = audit["stats"].get("execution_path")
    return {
        "line": entry["line"],
        "result": audit["result"],
        "expected": expected_of(audit["case"]),
        "input": inputs_of(entry["record"]),
        "execution_path": path if isinstance(path, list) else [],
    }
