"""Single results read back from the JSONL files, which alone know everything about a row."""

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
    """Where a result stands: its file, and its row among all rows of the part."""

    file: str
    part: int
    row: int
    line: int | None


def read_back(folder: Path, index: Index, spots: Iterable[Spot]) -> dict[Spot, Record]:
    """The records at some places, each with its line under `line`; a place that is gone has none."""
    found: dict[Spot, Record] = {}
    for (file, part), wanted in groupby(sorted(spots, key=lambda spot: spot[:3]), key=lambda spot: spot[:2]):
        source = next(one for one in index.parts[part].sources if one.name == file)
        read = _exact if index.parts[part].exact else _plain
        found |= read(folder / file, {spot.row - source.first: spot for spot in wanted})
    return found


def _exact(path: Path, wanted: dict[int, Spot]) -> dict[Spot, Record]:
    """The n-th objects of a file, several of which may stand in one line."""
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
    """The lines that are not blank, which is how DuckDB counts rows; None for what is no object."""
    with path.open("rb") as stream:
        for line, text in enumerate(stream, 1):
            if not text.isspace():
                yield line, _decoded(text)


def _decoded(text: bytes) -> Record | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            # Python writes NaN, and DuckDB reads it.
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def told(found: Record | None) -> Record:
    """What only the file knows of a result: `line, result, expected, input, execution_path`."""
    audit = normalize_audit(found["record"]) if found else None
    if found is None or audit is None:
        return {"line": None, "result": None, "expected": {}, "input": {}, "execution_path": []}
    path = audit["stats"].get("execution_path")
    return {
        "line": found["line"],
        "result": audit["result"],
        "expected": expected_of(audit["case"]),
        "input": inputs_of(found["record"]),
        "execution_path": path if isinstance(path, list) else [],
    }
