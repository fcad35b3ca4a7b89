"""Checks one block of records: lists the first findings of each code, counts all of them, and collects the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import compress, repeat
from typing import Any

from msgspec import Struct, field

from evalloom.core.model import (
    Case,
    Check,
    Finding,
    Need,
    Origin,
    Path,
    Place,
    Record,
    Remark,
    Severity,
    show_path,
    warning,
)
from evalloom.data.checks import FIELD, CheckLists, CheckRules, looks_like_checks, names_checks
from evalloom.data.dataset import not_object
from evalloom.data.dialect import Dialect, Rules
from evalloom.data.formats import Formats
from evalloom.data.mapping import Mapping
from evalloom.data.validate.keys import KeyBuilder, KeyColumn
from evalloom.data.validate.shapes import Shapes
from evalloom.files.rows import Item, Lines, Problem, Recognized, Row

LISTED_PER_CODE = 1000
_MOST_SHAPES = 1000
_PLAIN_TYPES = (str, int, float, bool, type(None))
_BY_VALUE = ("python", "regex", "structural", "is_instance", "json_path", "language", "tool_calls")
"""Kinds of checks whose expected text decides whether they can be scored, and what they need."""
_BATCH = 32
"""The number of records per call of `are_clean`. A batch with one bad record is checked again row by row."""


class Dependent(Struct, frozen=True):
    """A case that depends on others, with its position; `base` is its id before parameters are filled in."""

    line: int
    column: int
    id: str
    base: str
    needs: tuple[str, ...]


class FileNote(Struct, frozen=True):
    """Something that holds for many records of a file: reported once, at the first of them, with its number."""

    line: int
    column: int
    count: int = 1


NoteKey = tuple[str, str]
"""The code of a note, and what it is about: a field, a kind of check, or a message."""


class Block(Struct, frozen=True):
    """The result of checking one block of a file."""

    lines: int
    cases: int
    findings: list[Finding]
    counts: Counter[tuple[str, Severity]]
    ids: KeyColumn
    pairs: KeyColumn
    sides: bytes
    dependents: list[Dependent]
    bases: set[str]
    """The ids of records that expand to several cases."""
    notes: dict[NoteKey, FileNote]


class FindingQuota:
    """Limits how many findings of each code are listed."""

    def __init__(self, full: Collection[str] = ()) -> None:
        self._listed = Counter(dict.fromkeys(full, LISTED_PER_CODE))

    def take(self, code: str) -> bool:
        """Use up one place of a code's quota; False when the quota is used up."""
        if self._listed[code] >= LISTED_PER_CODE:
            return False
        self._listed[code] += 1
        return True

    def full_codes(self) -> frozenset[str]:
        return frozenset(code for code, count in self._listed.items() if count >= LISTED_PER_CODE)


class Checker(Struct, frozen=True):
    """Checks the records of one file against its dialect and the user's rules."""

    file: str
    dialect: Dialect
    rules: Rules
    mapping: Mapping
    formats: Formats
    check_lists: CheckLists = "plain"
    declared: frozenset[str] = frozenset()
    """The inputs that the target declares."""
    shapes: Shapes | None = None
    """What learns to recognize clean lines without decoding them."""
    read_shapes: set[tuple[str, ...]] = field(default_factory=set)
    """The fields of records of which none only looks like checks, so that most records need no look."""

    def check(
        self,
        items: Iterable[Item],
        full: Collection[str] = (),
        add_name: Callable[[Case], None] | None = None,
    ) -> Block:
        """Check one block of the file; findings of the codes in `full` are only counted.

        `add_name` gets each case that is read whole.
        """
        builder = _BlockBuilder(self, full, add_name)
        for item in items:
            if isinstance(item, Recognized):
                builder.add_recognized(item)
            elif isinstance(item, Lines):
                builder.add_lines(item)
            elif isinstance(item, Row):
                builder.add_row(item)
            else:
                builder.add_problem(item)
        return builder.block()

    def finding(self, remark: Remark, row: Row) -> Finding:
        """Turn a remark about a row into a finding with its position."""
        path = self.mapping.source_path(remark.path)
        place = row.place_of(path) if path else Place(row.line, row.column)
        case_id = self.dialect.identity(row.value)
        # A remark about a missing field has no path; its message begins with the name of the field.
        field = str(remark.path[0]) if remark.path else remark.message.partition(": ")[0]
        return Finding(
            remark.code,
            remark.severity,
            remark.message,
            Origin(row.file or self.file, *place),
            field=field if remark.path or field.isidentifier() else "",
            case_id="" if case_id is None else str(case_id),
        )


class _BlockBuilder:
    """Collects findings, keys and dependencies while one block is checked."""

    def __init__(self, checker: Checker, full: Collection[str], add_name: Callable[[Case], None] | None) -> None:
        self._checker = checker
        self._add_name = add_name
        self._dialect = checker.dialect
        self._quota = FindingQuota(full)
        self._cases = 0
        self._findings: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._ids = KeyBuilder()
        self._pairs = KeyBuilder()
        self._sides = bytearray()
        self._dependents: list[Dependent] = []
        self._bases: set[str] = set()
        self._notes: dict[NoteKey, FileNote] = {}
        self._foreseen_checks: dict[tuple[Any, ...], tuple[str, Need]] = {}
        self._read_shapes = checker.read_shapes

    def block(self) -> Block:
        return Block(
            0,
            self._cases,
            self._findings,
            self._counts,
            self._ids.column(),
            self._pairs.column(),
            bytes(self._sides),
            self._dependents,
            self._bases,
            self._notes,
        )

    def add_lines(self, lines: Lines) -> None:
        """Check plain lines: a batch at a time while they are clean, otherwise row by row."""
        values, rules, are_clean = lines.values, self._checker.rules, self._dialect.are_clean
        for start in range(0, len(values), _BATCH):
            records = values[start : start + _BATCH]
            if all(type(record) is dict for record in records) and are_clean(records, rules):
                numbers = range(lines.line + start, lines.line + start + len(records))
                self._add_keys(records, numbers)
                if start == 0 and self._checker.shapes is not None:
                    self._checker.shapes.learn(records[0], lines.texts[0])
                if not self._read_shapes.issuperset(map(tuple, records)):
                    for record, line in zip(records, numbers, strict=True):
                        self._add_unread(record, line, 1)
            else:
                for row in lines.rows(start, start + _BATCH):
                    self.add_row(row)

    def add_recognized(self, lines: Recognized) -> None:
        """Add the keys of lines that are known to be clean."""
        if tuple(lines.shape.keys) not in self._read_shapes:
            self.add_lines(lines.decoded())
            return
        import numpy as np  # deferred: only large files have such lines

        self._cases += lines.count
        numbers = np.arange(lines.line, lines.line + lines.count, dtype=np.uintc)
        if ids := lines.columns.get(self._dialect.id_field):
            self._ids.keys += ids
            self._ids.lines.frombytes(numbers.tobytes())
            self._ids.pack()
        if (pairing := self._dialect.pairing) is not None:
            sides = {pairing.sides[0]: 1, pairing.sides[1]: 2}
            bits = bytes(map(sides.get, lines.columns[pairing.side_field], repeat(0)))
            names: Iterable[str] = map(str.strip, lines.columns[pairing.field])
            if 0 in bits:
                names, numbers = compress(names, bits), numbers[np.frombuffer(bits, np.uint8) > 0]
            self._pairs.keys += names
            self._pairs.lines.frombytes(numbers.tobytes())
            self._sides += bits.replace(b"\0", b"")
            self._pairs.pack()

    def add_row(self, row: Row) -> None:
        record = row.value
        if not isinstance(record, dict):
            self.add_problem(not_object(row, self._dialect))
            return
        checker, dialect = self._checker, self._dialect
        if dialect.are_clean([record], checker.rules):
            self._add_keys([record], range(row.line, row.line + 1))
            self._add_unread(record, row.line, row.column)
            return
        remarks = [*dialect.findings(record, checker.rules)]
        remarks += checker.formats.check_list_errors(dialect, record, checker.check_lists)
        for remark in remarks:
            self._add_remark(remark, row)
        for expanded in dialect.multiplied(record):
            self._add_keys([expanded], range(row.line, row.line + 1))
            self._add_needs(expanded, row)
        # A record with errors may lack the types that a case needs.
        if dialect.is_case(record) and not any(remark.severity == "error" for remark in remarks):
            self._add_unread(record, row.line, row.column)
            if checker.formats.check_rules is not None:
                self._add_checks(record, row, {remark.path for remark in remarks}, checker.formats.check_rules)

    def _add_remark(self, remark: Remark, row: Row) -> None:
        self._counts[remark.code, remark.severity] += 1
        if self._quota.take(remark.code):
            self._findings.append(self._checker.finding(remark, row))

    def _add_checks(self, record: Record, row: Row, reported: set[Path], rules: CheckRules) -> None:
        """Warn about each check that no run can score, and note what the others need (WORK-2)."""
        checker, dialect = self._checker, self._dialect
        first = next(iter(dialect.multiplied(record)), record)
        origin = Origin(row.file or checker.file, row.line, row.column)
        case = checker.formats.case(dialect, first, origin, checker.check_lists)
        if self._add_name is not None and dialect.multiply is None:
            self._add_name(case)
        read = checker.formats.check_list(dialect, record, checker.check_lists) if FIELD in record else None
        if read is not None:
            self._note(("checks_read", FIELD), row.line, row.column)
        paths: list[Path] | None = None
        for number, check in enumerate(case.checks):
            why, need = self._foreseen(check, rules)
            if need:
                self._note((f"needs_{need}", check.kind), row.line, row.column)
            if not why:
                continue
            if paths is None:
                listed = range(len(read.checks) if read else 0)
                paths = [*dialect.check_paths(record), *((FIELD, item) for item in listed)]
            path = paths[number] if number < len(paths) else ()
            message = f"{show_path(path) or check.name or check.kind}: will not be scored: {why}"
            if not path:
                # It is written outside of the record, for many of them.
                self._note(("check_not_scored", message), row.line, row.column)
            elif path not in reported:
                self._add_remark(warning("check_not_scored", path, message), row)

    def _foreseen(self, check: Check, rules: CheckRules) -> tuple[str, Need]:
        """Return why a check will not be scored, and what it needs. Checks that differ only in a text are alike."""
        expected, options = check.expected, check.options
        if type(expected) not in _PLAIN_TYPES:
            return _foresee(check, rules)
        # The text of some decides; of others only that there is one.
        decisive = expected if check.kind in _BY_VALUE else bool(expected)
        key = (check.kind, check.where, type(expected), decisive, repr(options) if options else "")
        foreseen = self._foreseen_checks.get(key)
        if foreseen is None:
            foreseen = _foresee(check, rules)
            if len(self._foreseen_checks) < _MOST_SHAPES:
                self._foreseen_checks[key] = foreseen
        return foreseen

    def _note(self, key: NoteKey, line: int, column: int) -> None:
        note = self._notes.get(key)
        count = note.count + 1 if note else 1
        self._notes[key] = FileNote(note.line, note.column, count) if note else FileNote(line, column)

    def _add_unread(self, record: Record, line: int, column: int) -> None:
        """Note the fields of a record that look like checks and are not read."""
        fields = tuple(record)
        if fields in self._read_shapes:
            return
        checker, dialect = self._checker, self._dialect
        known = (*checker.declared, *dialect.expectations)
        named = [name for name in fields if name not in known and names_checks(name)]
        unread = [name for name in named if looks_like_checks(name, record[name])]
        if unread:
            case = checker.formats.case(dialect, record, Origin(checker.file), checker.check_lists)
            unread = [name for name in unread if name in case.inputs or name in case.meta]
            for name in unread:
                self._note(("checks_not_read", name), line, column)
        # Whether `checks` is read, and `check` looks like checks, depends on the value.
        is_certain = not unread and named == [name for name in named if name.startswith("expected")]
        if is_certain and len(self._read_shapes) < _MOST_SHAPES:
            self._read_shapes.add(fields)

    def _add_needs(self, record: Record, row: Row) -> None:
        """Collect the dependencies of a record; they are checked when all ids of the file are known."""
        needs = self._dialect.needs(record) if self._dialect.needs is not None else ()
        if record is row.value and not needs:
            return
        id, base = (str(self._dialect.identity(source) or "") for source in (record, row.value))
        if record is not row.value:
            self._bases.add(base)
        if needs:
            self._dependents.append(Dependent(row.line, row.column, id, base, needs))

    def add_problem(self, problem: Problem) -> None:
        self._counts[problem.code, problem.severity] += 1
        if self._quota.take(problem.code):
            origin = Origin(problem.file or self._checker.file, *problem.place)
            self._findings.append(Finding(problem.code, problem.severity, problem.message, origin))

    def _add_keys(self, records: list[Record], lines: range) -> None:
        """Count cases, and collect the ids and pairs that are checked over the whole file."""
        self._cases += sum(map(self._dialect.is_case, records))
        ids = list(map(self._dialect.identity, records))
        if None not in ids:
            self._ids.keys += ids  # type: ignore[arg-type]
            self._ids.lines.extend(lines)
        else:
            self._ids.keys += [id for id in ids if id is not None]
            self._ids.lines.extend(line for id, line in zip(ids, lines, strict=True) if id is not None)
        pairing = self._dialect.pairing
        if pairing is None:
            return
        paired = [(pair, line) for pair, line in zip(map(pairing.of, records), lines, strict=True) if pair]
        self._pairs.keys += [pair for (pair, _), _ in paired]
        self._sides += bytes([1 if side == pairing.sides[0] else 2 for (_, side), _ in paired])
        self._pairs.lines.extend([line for _, line in paired])


def _foresee(check: Check, rules: CheckRules) -> tuple[str, Need]:
    why = rules.why_unscored(check)
    return why, "" if why else rules.needs(check)
