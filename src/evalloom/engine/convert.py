"""`evalloom convert`: the cases of one format written in another, with a list of what found no place there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import IO

import orjson
from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Finding, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.identity import Namer
from evalloom.files.rows import Problem, Row

_LISTED = 1000


class Conversion(Struct):
    """How a conversion went: cases written, what they lost, and what could not be read at all."""

    written: int = 0
    faulty: int = 0
    """How many of the written cases have errors by the rules of the format they came from."""
    errors: int = 0
    """How many records could not be read."""
    lost: Counter[str] = Counter()
    unread: list[Finding] = []
    """What is wrong there: the first thousand findings; `unlisted` counts the rest."""
    unlisted: int = 0


def convert(dataset: Dataset, to: Dialect, stream: IO[bytes], as_array: bool) -> Conversion:
    """Writes every readable case of a dataset in another dialect; the rest is told, never dropped in silence."""
    if to.write is None:
        names = ", ".join(dialect.name for dialect in dataset.formats.writers)
        raise usage_error("no_writer", f"--to: expected one of {names}, got {to.name!r}, which is only read")
    if remark := dataset.dialect.lacks_inputs(dataset.sample):
        raise usage_error(remark.code, f"{dataset.source.name}: {remark.message}")
    conversion = Conversion(lost=Counter(), unread=[])
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
    rules, namer = Rules(), dataset.namer()
    for item in dataset:
        if isinstance(item, Problem):
            origin = Origin(item.file or dataset.source.name, *item.place)
            conversion.errors += item.severity == "error"
            if len(conversion.unread) < _LISTED:
                conversion.unread.append(Finding(item.code, item.severity, item.message, origin))
            else:
                conversion.unlisted += 1
        elif not dataset.dialect.is_case(item.value):
            conversion.lost["line: it describes a batch and is no case"] += 1
        else:
            remarks = dataset.dialect.findings(item.value, rules)
            conversion.faulty += any(remark.severity == "error" for remark in remarks)
            yield from _converted(dataset, item, to, namer, conversion)


def _converted(dataset: Dataset, row: Row, to: Dialect, namer: Namer, conversion: Conversion) -> Iterator[Record]:
    """A record as it is within its own format; in another, one for each case that it stands for."""
    formats, lists = dataset.formats, dataset.check_lists
    has_list = formats.check_list(dataset.dialect, row.value, lists) is not None
    if to.write is None or (dataset.dialect is to and not has_list):
        yield to.canonical(row.value)
        return
    for record in dataset.dialect.multiplied(row.value):
        case = dataset.case(record, dataset.origin(row))
        named = namer.name(case)
        # The number of a row is no id to keep: the other format numbers cases in its own way.
        written = to.write(named.case if named.position else case, conversion.written + 1)
        conversion.lost.update(written.lost)
        yield written.record
