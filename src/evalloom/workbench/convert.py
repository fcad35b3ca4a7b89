"""`evalloom convert`: the cases of one format written in another, with a list of what found no place there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import IO

import orjson
from msgspec import Struct

from evalloom.dialects import WRITERS
from evalloom.dialects.dataset import Dataset
from evalloom.dialects.dialect import Dialect, Rules
from evalloom.errors import usage_error
from evalloom.files.rows import Problem
from evalloom.model import Case, Finding, Origin, Record

_LISTED = 1000


class Conversion(Struct):
    """How a conversion went: how many cases, what each lost, and the records that could not be read."""

    written: int = 0
    refused: int = 0
    lost: Counter[str] = Counter()
    findings: list[Finding] = []


def convert(dataset: Dataset, to: Dialect, stream: IO[bytes], as_array: bool) -> Conversion:
    """Writes every readable case of a dataset in another dialect; the rest is told, never dropped in silence."""
    if to not in WRITERS:
        names = ", ".join(dialect.name for dialect in WRITERS)
        raise usage_error("no_writer", f"--to: expected one of {names}, got {to.name!r}, which is only read")
    conversion = Conversion(lost=Counter(), findings=[])
    before = b"[\n" if as_array else b""
    for record in _records(dataset, to, conversion):
        stream.write(before + orjson.dumps(record, option=orjson.OPT_INDENT_2 if as_array else 0))
        before = b",\n" if as_array else b"\n"
        conversion.written += 1
    if as_array:
        stream.write(b"\n]\n" if conversion.written else b"[]\n")
    elif conversion.written:
        stream.write(b"\n")
    return conversion


def _records(dataset: Dataset, to: Dialect, conversion: Conversion) -> Iterator[Record]:
    rules = Rules()
    for item in dataset:
        if isinstance(item, Problem):
            _refuse(
                conversion, Finding(item.code, item.severity, item.message, Origin(dataset.source.name, *item.place))
            )
            continue
        remarks = [remark for remark in dataset.dialect.findings(item.value, rules) if remark.severity == "error"]
        for remark in remarks:
            finding = Finding(remark.code, remark.severity, remark.message, dataset.origin(item, remark.path))
            _refuse(conversion, finding)
        if remarks or not dataset.dialect.is_case(item.value):
            conversion.refused += bool(remarks)
            if not remarks:
                conversion.lost["meta line: describes a batch, not a case"] += 1
            continue
        if dataset.dialect is to:
            yield to.canonical(item.value)
            continue
        case = dataset.dialect.to_case(item.value, dataset.origin(item))
        yield _written(case, to, conversion)


def _written(case: Case, to: Dialect, conversion: Conversion) -> Record:
    assert to.write is not None
    written = to.write(case, conversion.written + 1)
    conversion.lost.update(written.lost)
    return written.record


def _refuse(conversion: Conversion, finding: Finding) -> None:
    conversion.refused += finding.severity == "error" and finding.code in _BROKEN
    if len(conversion.findings) < _LISTED:
        conversion.findings.append(finding)


_BROKEN = ("json_parse_error", "json_not_object", "lone_surrogate", "nesting_too_deep", "number_loses_precision")
