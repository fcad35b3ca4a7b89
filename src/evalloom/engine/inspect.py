"""`evalloom inspect`: what is in a file, without judging it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
from msgspec import Struct

from evalloom.core.model import Finding, Origin, Record
from evalloom.core.text import type_name
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.files.rows import Problem

_NO_RULES = Rules()
_MOST_FIELDS = 200
"""Records with keys that are data (an id as a key) would fill the memory otherwise."""


class FieldSummary(Struct):
    """One field over all records: how often it is there, of which types, with an example."""

    name: str
    count: int
    types: dict[str, int]
    example: Any


class Contents(Struct):
    """What a file holds."""

    file: str
    dialect: str
    reason: str
    layout: str
    lines: int
    records: int
    cases: int
    problems: int
    first_problem: str
    checks: dict[str, int]
    tags: dict[str, int]
    fields: list[FieldSummary]
    record_bytes: dict[str, int]
    sample: Record | None


def inspect(dataset: Dataset) -> Contents:
    """Reads a dataset through and sums up what it saw."""
    fields: dict[str, FieldSummary] = {}
    tags: Counter[str] = Counter()
    checks: Counter[str] = Counter()
    records = cases = problems = total = smallest = largest = 0
    sample: Record | None = None
    first = ""
    for item in dataset:
        if isinstance(item, Problem):
            if item.severity == "error":
                problems += 1
                origin = Origin(item.file or dataset.source.name, *item.place)
                first = first or str(Finding(item.code, "error", item.message, origin))
            continue
        records += 1
        written = _as_written(item.value, dataset)
        size = len(item.text) or len(orjson.dumps(written))
        total, largest = total + size, max(largest, size)
        smallest = min(smallest or size, size)
        _count_fields(fields, written)
        if not dataset.dialect.is_case(item.value):
            continue
        sample = sample or written
        errors = (one for one in dataset.dialect.findings(item.value, _NO_RULES) if one.severity == "error")
        if (error := next(errors, None)) is not None:
            cases += 1
            problems += 1
            first = first or str(Finding(error.code, "error", error.message, dataset.origin(item, error.path)))
            continue
        for record in dataset.dialect.multiplied(item.value):
            cases += 1
            case = dataset.case(record, dataset.origin(item))
            tags.update(case.tags)
            checks.update(check.kind for check in case.checks)
    sizes = {"smallest": smallest, "mean": total // records if records else 0, "largest": largest}
    return Contents(
        dataset.source.name,
        dataset.dialect.name,
        dataset.reason,
        dataset.layout,
        dataset.lines,
        records,
        cases,
        problems,
        first,
        dict(checks.most_common()),
        dict(tags.most_common()),
        list(fields.values()),
        sizes,
        sample,
    )


def _as_written(record: Record, dataset: Dataset) -> Record:
    """Return a record without the fields that reading a document has added to it."""
    added = dataset.dialect.added_fields if dataset.expansion is not None else ()
    return {name: value for name, value in record.items() if name not in added} if added else record


def _count_fields(fields: dict[str, FieldSummary], record: Record) -> None:
    for name, value in record.items():
        found = fields.get(name)
        if found is None:
            if len(fields) >= _MOST_FIELDS:
                continue
            found = fields[name] = FieldSummary(name, 0, {}, value)
        found.count += 1
        kind = type_name(value)
        found.types[kind] = found.types.get(kind, 0) + 1
