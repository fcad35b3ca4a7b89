"""Single results read back from the JSONL files, which alone know everything about a row."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalloom.analyse.hop_parts import Index, read_records
from evalloom.analyse.hop_rows import expected_of
from evalloom.dialects.hop import inputs_of, normalize_audit
from evalloom.model import Record


class Spot(NamedTuple):
    """Where a result stands: its file, and there its line, or its row in the part where the line is not known."""

    file: str
    part: int
    row: int
    line: int | None


def read_back(folder: Path, index: Index, spots: Iterable[Spot]) -> dict[Spot, Record]:
    """The records at some places, each with its line under `line`; a place that is gone has none."""
    found: dict[Spot, Record] = {}
    for (file, part), wanted in groupby(sorted(spots, key=lambda spot: spot[:3]), key=lambda spot: spot[:2]):
        source = next(one for one in index.parts[part].sources if one.name == file)
        if index.parts[part].exact:
            found |= _by_line(folder / file, {spot.line: spot for spot in wanted})
        else:
            found |= _by_number(folder / file, {spot.row - source.first: spot for spot in wanted})
    return found


def _by_line(path: Path, wanted: dict[int | None, Spot]) -> dict[Spot, Record]:
    found = {}
    for line, record in read_records(path):
        if line in wanted and isinstance(record, dict):
            found[wanted.pop(line)] = {"line": line, "record": record}
            if not wanted:
                break
    return found


def _by_number(path: Path, wanted: dict[int, Spot]) -> dict[Spot, Record]:
    """The n-th lines that are not blank, which is how DuckDB counted them."""
    found: dict[Spot, Record] = {}
    number, last = -1, max(wanted)
    try:
        with path.open("rb") as stream:
            for line, text in enumerate(stream, 1):
                number += not text.isspace()
                if number in wanted and not text.isspace():
                    found[wanted[number]] = {"line": line, "record": msgspec.json.decode(text, type=dict)}
                if number >= last:
                    break
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        # The file changed since it was copied; the next question sees it as it is.
        pass
    return found


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
