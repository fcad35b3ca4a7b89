"""Findings as they come in: the first thousand of each code are kept, all of them are counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable

import orjson
from msgspec import Struct

from evalloom.dialects.dataset import not_object
from evalloom.dialects.dialect import Dialect, Rules
from evalloom.dialects.mapping import Mapping
from evalloom.files.rows import Problem, Row
from evalloom.model import Finding, Origin, Place, Remark, Severity

KEPT_PER_CODE = 1000


class Block(Struct, frozen=True):
    """What one stretch of a file had in it; keys are packed as JSON, with the line of each."""

    lines: int
    cases: int
    findings: list[Finding]
    counts: Counter[tuple[str, Severity]]
    ids: bytes
    id_lines: array[int]
    pairs: bytes
    pair_lines: array[int]
    sides: bytes


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

    def check(self, items: Iterable[Row | Problem], full: Collection[str] = ()) -> Block:
        """Goes through rows and problems: the one loop that every record passes."""
        is_clean, findings_of, identity = self.dialect.is_clean, self.dialect.findings, self.dialect.identity
        pair_of, is_case, rules = self.dialect.pair, self.dialect.is_case, self.rules
        kept, counts, findings, cases = Kept(full), Counter[tuple[str, Severity]](), [], 0
        ids, id_lines, pairs, pair_lines, sides = [], array("I"), [], array("I"), bytearray()
        for item in items:
            if isinstance(item, Row):
                record = item.value
                if isinstance(record, dict):
                    if not is_clean(record, rules):
                        for remark in findings_of(record, rules):
                            counts[remark.code, remark.severity] += 1
                            if kept.has_room(remark.code):
                                findings.append(self._finding(remark, item))
                    if is_case(record):
                        cases += 1
                    if (key := identity(record)) is not None:
                        ids.append(key)
                        id_lines.append(item.line)
                    if pair_of is not None and (pair := pair_of(record)) is not None:
                        pairs.append(pair[0])
                        pair_lines.append(item.line)
                        sides.append(1 if pair[1] == "official" else 2)
                    continue
                item = not_object(item, self.dialect)
            counts[item.code, item.severity] += 1
            if kept.has_room(item.code):
                findings.append(self.located(item))
        packed = orjson.dumps(ids), id_lines, orjson.dumps(pairs), pair_lines, bytes(sides)
        return Block(0, cases, findings, counts, *packed)

    def located(self, problem: Problem) -> Finding:
        origin = Origin(problem.file or self.file, *problem.place)
        return Finding(problem.code, problem.severity, problem.message, origin)

    def _finding(self, remark: Remark, row: Row) -> Finding:
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


def _named_field(message: str) -> str:
    """The field that a remark about a missing field begins with."""
    name = message.partition(": ")[0]
    return name if name.isidentifier() else ""
