"""Findings as they come in: the first thousand of each code are kept, all of them are counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import orjson
from msgspec import Struct

from evalloom.core.model import Finding, Origin, Place, Record, Remark, Severity
from evalloom.data.dataset import not_object
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.mapping import Mapping
from evalloom.files.rows import Lines, Problem, Row

KEPT_PER_CODE = 1000
_AT_ONCE = 32
"""How many records are asked at once whether they are clean: few enough that one faulty record costs little."""


class KeyColumn(Struct, frozen=True):
    """Keys of one stretch of a file: their hashes, their lines, and the keys themselves packed as JSON."""

    hashes: array[int]
    lines: array[int]
    packed: bytes


class Dependent(NamedTuple):
    """A case that depends on others, and where it stands; `base` is its id before parameters were filled in."""

    line: int
    column: int
    id: str
    base: str
    needs: tuple[str, ...]


class Block(Struct, frozen=True):
    """What one stretch of a file had in it."""

    lines: int
    cases: int
    findings: list[Finding]
    counts: Counter[tuple[str, Severity]]
    ids: KeyColumn
    pairs: KeyColumn
    sides: bytes
    dependents: list[Dependent]
    bases: set[str]
    """The ids of records that stand for several cases."""


class Kept:
    """Which findings there is still room for."""

    def __init__(self, full: Collection[str] = ()) -> None:
        self._kept = Counter(dict.fromkeys(full, KEPT_PER_CODE))

    def has_room(self, code: str) -> bool:
        """Whether one more finding of this code is kept; counts it when it is."""
        if self._kept[code] >= KEPT_PER_CODE:
            return False
        self._kept[code] += 1
        return True

    def full_codes(self) -> frozenset[str]:
        return frozenset(code for code, kept in self._kept.items() if kept >= KEPT_PER_CODE)


class Checker(Struct, frozen=True):
    """Holds the records of one file against its dialect and the user's rules."""

    file: str
    dialect: Dialect
    rules: Rules
    mapping: Mapping

    def check(self, items: Iterable[Row | Problem | Lines], full: Collection[str] = ()) -> Block:
        """Goes through everything in a stretch of the file."""
        tally = _Tally(self, full)
        for item in items:
            if isinstance(item, Lines):
                tally.add_lines(item)
            elif isinstance(item, Row):
                tally.add_row(item)
            else:
                tally.add_problem(item)
        return tally.block()

    def finding(self, remark: Remark, row: Row) -> Finding:
        """A remark about a row, at its place."""
        path = self.mapping.source_path(remark.path)
        place = row.place_of(path) if path else Place(row.line, row.column)
        case_id = self.dialect.identity(row.value)
        return Finding(
            remark.code,
            remark.severity,
            remark.message,
            Origin(row.file or self.file, *place),
            field=str(remark.path[0]) if remark.path else _named_field(remark.message),
            case_id="" if case_id is None else str(case_id),
        )


class _Tally:
    """What has been found in one stretch so far."""

    def __init__(self, checker: Checker, full: Collection[str]) -> None:
        self._checker = checker
        self._dialect = checker.dialect
        self._kept = Kept(full)
        self._cases = 0
        self._findings: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._ids: list[str | int] = []
        self._id_lines = array("I")
        self._pairs: list[str] = []
        self._pair_lines = array("I")
        self._sides = bytearray()
        self._dependents: list[Dependent] = []
        self._bases: set[str] = set()

    def block(self) -> Block:
        ids = _key_column(self._ids, self._id_lines)
        pairs = _key_column(self._pairs, self._pair_lines)
        return Block(
            0,
            self._cases,
            self._findings,
            self._counts,
            ids,
            pairs,
            bytes(self._sides),
            self._dependents,
            self._bases,
        )

    def add_lines(self, lines: Lines) -> None:
        """Many plain lines: a few dozen at once when they are clean, else row by row."""
        values, rules, are_clean = lines.values, self._checker.rules, self._dialect.are_clean
        for start in range(0, len(values), _AT_ONCE):
            records = values[start : start + _AT_ONCE]
            if all(type(record) is dict for record in records) and are_clean(records, rules):
                self._count(records, range(lines.line + start, lines.line + start + len(records)))
            else:
                for row in lines.rows(start, start + _AT_ONCE):
                    self.add_row(row)

    def add_row(self, row: Row) -> None:
        record = row.value
        if not isinstance(record, dict):
            self.add_problem(not_object(row, self._dialect))
            return
        for remark in self._dialect.findings(record, self._checker.rules):
            self._counts[remark.code, remark.severity] += 1
            if self._kept.has_room(remark.code):
                self._findings.append(self._checker.finding(remark, row))
        for one in self._dialect.multiplied(record):
            self._count([one], range(row.line, row.line + 1))
            self._note_needs(one, row)

    def _note_needs(self, record: Record, row: Row) -> None:
        """Takes down who waits for whom; whether that can be is seen when the whole file is known."""
        needs = self._dialect.needs(record) if self._dialect.needs is not None else ()
        if record is row.value and not needs:
            return
        id, base = (str(self._dialect.identity(one) or "") for one in (record, row.value))
        if record is not row.value:
            self._bases.add(base)
        if needs:
            self._dependents.append(Dependent(row.line, row.column, id, base, needs))

    def add_problem(self, problem: Problem) -> None:
        self._counts[problem.code, problem.severity] += 1
        if self._kept.has_room(problem.code):
            origin = Origin(problem.file or self._checker.file, *problem.place)
            self._findings.append(Finding(problem.code, problem.severity, problem.message, origin))

    def _count(self, records: list[Record], lines: range) -> None:
        """Takes down what must be unique, and paired, over the whole file."""
        self._cases += sum(map(self._dialect.is_case, records))
        ids = list(map(self._dialect.identity, records))
        if None not in ids:
            self._ids += ids  # type: ignore[arg-type]
            self._id_lines.extend(lines)
        else:
            self._ids += [id for id in ids if id is not None]
            self._id_lines.extend(line for id, line in zip(ids, lines, strict=True) if id is not None)
        pairing = self._dialect.pairing
        if pairing is None:
            return
        found = [(pair, line) for pair, line in zip(map(pairing.of, records), lines, strict=True) if pair]
        self._pairs += [pair for (pair, _), _ in found]
        self._sides += bytes([1 if side == pairing.sides[0] else 2 for (_, side), _ in found])
        self._pair_lines.extend([line for _, line in found])


def _key_column(keys: list[str | int] | list[str], lines: array[int]) -> KeyColumn:
    return KeyColumn(array("q", map(_hash, keys)), lines, orjson.dumps(keys))


def _hash(key: str | int) -> int:
    # A number's own hash will not do: -1 and -2 have the same, and so have 1 and 2**61.
    return hash(key) if isinstance(key, str) else hash((str(key),))


def _named_field(message: str) -> str:
    """The field that a remark about a missing field begins with."""
    name = message.partition(": ")[0]
    return name if name.isidentifier() else ""
