"""Validates one dataset: each record by itself, then ids, pairs and dependencies over the whole file."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

import msgspec

from evalloom.core.model import Checked, Finding, Origin, Severity
from evalloom.core.text import did_you_mean, pluralize, quote
from evalloom.data.checks import FIELD, NEEDS
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.identity import NameHashes
from evalloom.data.mapping import proposals
from evalloom.data.validate import parallel
from evalloom.data.validate.checker import Block, Checker, Dependent, FileNote, FindingQuota, NoteKey
from evalloom.data.validate.keys import KeyIndex
from evalloom.files.rows import Problem, Row

_BLOCK_ROWS = 20_000
_SHARED_ROWS = 500
"""The number of rows in memory when a consumer reads them too."""
_CYCLE_CASES_SHOWN = 50
_MAX_CYCLES = 1_000
_MAX_SUGGESTED_FROM = 10_000
"""In a file with more ids, an unknown dependency gets no suggestion: the comparison would take too long."""

Consumer = Callable[[Iterator[Row | Problem]], None]


def validate(
    dataset: Dataset,
    rules: Rules = Rules(),
    hints: bool = True,
    more: Iterable[Finding] = (),
    consumer: Consumer | None = None,
) -> Checked:
    """Return the findings of one dataset; `hints` adds warnings about the name, dialect and field names of the file.

    `more` are further findings about the same source, counted and listed with the others. A `consumer` reads each
    row in the same pass, so the file is then read in this process.
    """
    checker = Checker(
        dataset.source.name,
        dataset.dialect,
        rules,
        dataset.mapping,
        dataset.formats,
        dataset.check_lists,
        dataset.declared,
    )
    try:
        total = _Total(checker)
        if dataset.source.path is not None and consumer is None and parallel.is_worth_it(dataset, checker):
            for block in parallel.check_ranges(dataset.source.path, checker, total.full_codes):
                total.add(block)
        else:
            total.add_all(dataset, consumer)
    except parallel.NotLines:
        total = _Total(checker)
        total.add_all(dataset)
    total.close()
    for finding in chain(_file_findings(dataset, total, hints), more):
        total.add_finding(finding)
    for finding in list(_note_findings(dataset, total)):
        total.add_finding(finding)
    return Checked(
        dataset.source.name,
        dataset.dialect.name,
        dataset.reason,
        total.lines,
        total.cases,
        total.findings,
        dict(total.counts),
    )


class _Total:
    """Adds up the blocks of a file, and checks ids, pairs and dependencies over all of them."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._quota = FindingQuota()
        self._ids = KeyIndex()
        self._pairs = KeyIndex()
        self._sides = bytearray()
        self._dependents: list[Dependent] = []
        self._bases: set[str] = set()
        self.notes: dict[NoteKey, FileNote] = {}
        self.lines = 0
        self.cases = 0
        self.findings: list[Finding] = []
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self.full_codes = self._quota.full_codes

    def add_all(self, dataset: Dataset, consumer: Consumer | None = None) -> None:
        """Check a dataset in this process, a block at a time, so that memory does not grow with it."""
        items = iter(dataset)
        hashes = NameHashes(dataset.names)
        if consumer is not None:
            checked = self._check_and_pass_on(items)
            consumer(checked)
            deque(checked, maxlen=0)  # check all rows, also where the consumer stops early
        else:
            for first in items:
                rows = chain((first,), islice(items, _BLOCK_ROWS - 1))
                self.add(self._checker.check(rows, self.full_codes(), hashes.add))
        self.lines = dataset.lines
        if hashes.cases == self.cases:
            dataset.names.use(hashes)

    def _check_and_pass_on(self, items: Iterator[Row | Problem]) -> Iterator[Row | Problem]:
        """Check the items and yield them."""
        while rows := list(islice(items, _SHARED_ROWS)):
            self.add(self._checker.check(rows, self.full_codes()))
            yield from rows

    def add(self, block: Block) -> None:
        """Add a block that begins after the lines so far."""
        for finding in block.findings:
            if self._quota.take(finding.code):
                if self.lines and (line := finding.origin.line):
                    origin = msgspec.structs.replace(finding.origin, line=line + self.lines)
                    finding = msgspec.structs.replace(finding, origin=origin)
                self.findings.append(finding)
        self.counts.update(block.counts)
        self.cases += block.cases
        self._ids.extend(block.ids, self.lines)
        self._pairs.extend(block.pairs, self.lines)
        self._sides += block.sides
        self._dependents += (msgspec.structs.replace(case, line=case.line + self.lines) for case in block.dependents)
        self._bases.update(block.bases)
        for key, note in block.notes.items():
            earlier = self.notes.get(key)
            place = (earlier.line, earlier.column) if earlier else (note.line + self.lines, note.column)
            self.notes[key] = FileNote(*place, note.count + (earlier.count if earlier else 0))
        self.lines += block.lines

    def add_finding(self, finding: Finding) -> None:
        self.counts[finding.code, finding.severity] += 1
        if self._quota.take(finding.code):
            self.findings.append(finding)

    def close(self) -> None:
        """Add the findings about ids, pairs and dependencies of the whole file."""
        dependencies = dependency_findings(self._checker.file, self._dependents, self._bases, self._ids)
        for finding in chain(self._id_findings(), self._unpaired(), dependencies):
            self.add_finding(finding)

    def _id_findings(self) -> Iterator[Finding]:
        for first, index in self._ids.repeats():
            id, line, first_line = self._ids.key(index), self._ids.line(index), self._ids.line(first)
            field = self._checker.dialect.id_field
            message = f"{field}: {quote(id)} on line {line} is already the id on line {first_line}; ids must be unique"
            yield self._at(line, "duplicate_id", "error", message, field, str(id))
        for index in self._ids.decreasing() if self._checker.dialect.ids_increase else ():
            before, id, line = self._ids.key(index - 1), self._ids.key(index), self._ids.line(index)
            message = f"id: expected more than {before}, the id before it, got {id}; ids should increase"
            yield self._at(line, "id_not_increasing", "warning", message, "id", str(id))

    def _unpaired(self) -> Iterator[Finding]:
        pairing = self._checker.dialect.pairing
        if pairing is None:
            return
        for index in self._pairs.incomplete(self._sides):
            line, side = self._pairs.line(index), self._sides[index]
            has, lacks = pairing.sides if side == 1 else reversed(pairing.sides)
            pair = quote(self._pairs.key(index))
            message = f"{pairing.field}: {pair} has {has} cases but no {lacks} one to compare with"
            case_id = self._ids.at_line(line)
            yield self._at(line, "unpaired_pair_id", "warning", message, pairing.field, str(case_id or ""))

    def _at(self, line: int, code: str, severity: Severity, message: str, field: str, case_id: str) -> Finding:
        return Finding(code, severity, message, Origin(self._checker.file, line, 1), field, case_id)


def _note_findings(dataset: Dataset, total: _Total) -> Iterator[Finding]:
    """Yield one finding for each note, with the number of records or checks that it holds for."""
    advised = " ".join(finding.message for finding in total.findings if finding.code == "fields_from_elsewhere")
    for (code, about), note in total.notes.items():
        # Advice on how to map a field says more than that it is not read.
        if code == "checks_not_read" and (repr(about) in advised or f"={about}" in advised):
            continue
        severity: Severity = "warning" if code in ("checks_not_read", "check_not_scored") else "info"
        field = about if code in ("checks_not_read", "checks_read") else ""
        message = _note_message(code, about, note.count, dataset)
        yield Finding(code, severity, message, Origin(dataset.source.name, note.line, note.column), field)


def _note_message(code: str, about: str, count: int, dataset: Dataset) -> str:
    if code == "check_not_scored":
        return f"{about} ({pluralize(count, 'case')})"
    if code.startswith("needs_"):
        need = "needs" if count == 1 else "need"
        return f"{pluralize(count, 'check')} of kind {about!r} {need} {NEEDS[code.removeprefix('needs_')]}"
    records = pluralize(count, "record")
    if code == "checks_read":
        return (
            f"{about}: read as checks of the case, in {records}; if the target declares an input {about!r}, it is that"
        )
    fields = dataset.dialect.expectations
    hint = did_you_mean(about, fields) or (f". {dataset.dialect.name} cases have {', '.join(fields)}" if fields else "")
    more = "; or write checks for all cases into evalloom.yaml" if about == FIELD else ""
    return f"{about}: looks like checks, but is not read as such, in {records}{hint}{more}"


def _file_findings(dataset: Dataset, total: _Total, hints: bool) -> Iterator[Finding]:
    """Yield findings about the file itself: no cases, a doubtful dialect, foreign field names, an unusual file name."""
    here = Origin(dataset.source.name)
    is_refused = any(finding.severity == "error" and not finding.origin.line for finding in total.findings)
    if not total.cases and not is_refused:
        yield Finding("no_cases", "error", "expected at least one case, got none", here)
    for remark in dataset.mapping.unknown(dataset.raw_sample):
        yield Finding(remark.code, remark.severity, remark.message, here)
    if not hints:
        return
    if len(dataset.votes) > 1 and not dataset.has_explicit_dialect:
        shown = ", ".join(f"{name} ({count})" for name, count in dataset.votes)
        message = (
            f"the records look like several dialects: {shown}; read as {dataset.dialect.name}. Say which with --dialect"
        )
        yield Finding("doubtful_dialect", "warning", message, here)
    if note := next(filter(None, map(dataset.dialect.scorer_note, dataset.sample)), ""):
        yield Finding("scorer_not_named", "info", f"{note}; 'evalloom inspect' lists the others", here)
    remarks = list(proposals(dataset.sample, dataset.dialect, dataset.formats))
    if not remarks and (unusual := dataset.dialect.file_name(Path(dataset.source.name).name, dataset.source.suffix)):
        remarks.append(unusual)
    for remark in remarks:
        yield Finding(remark.code, remark.severity, remark.message, here)


# -- dependencies ---------------------------------------------------------------------------------


def dependency_findings(file: str, dependents: list[Dependent], bases: set[str], ids: KeyIndex) -> Iterator[Finding]:
    """Yield unknown dependencies and cycles; `bases` are the ids of records with parameters."""
    case_ids = ids.intersection({need for case in dependents for need in case.needs}) if dependents else set()
    suggestions: list[str] | None = None
    for case in dependents:
        for need in case.needs:
            if need in case_ids or need in bases:
                continue
            if suggestions is None:
                suggestions = [*map(str, ids.texts()), *case_ids, *bases] if len(ids) <= _MAX_SUGGESTED_FROM else []
            message = f"depends_on: no case of this file has the id {quote(need)}{did_you_mean(need, suggestions)}"
            yield _dependency_finding("unknown_dependency", message, file, case)
    nodes = {case.id: case for case in dependents}
    edges: dict[str, list[str]] = {case.id: list(case.needs) for case in dependents}
    for case in dependents:
        # The id of a record with parameters stands for all its cases, unless a case has the same id.
        if case.base != case.id and case.base not in case_ids:
            edges.setdefault(case.base, []).append(case.id)
    reported: set[frozenset[int]] = set()
    for cycle in islice(_cycles(edges), _MAX_CYCLES):
        members = [nodes[id] for id in cycle if id in nodes]
        lines = frozenset(case.line for case in members)
        # Each case of a record with parameters may be in a cycle; report the record once.
        if lines not in reported:
            reported.add(lines)
            first = min(range(len(members)), key=lambda index: members[index].line)
            message = _cycle_message(members[first:] + members[:first])
            yield _dependency_finding("dependency_cycle", message, file, members[first])


def _cycles(edges: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Yield the cycles that a depth-first search meets: at least one if the graph has any."""
    done: set[str] = set()
    for start in edges:
        path: dict[str, Iterator[str]] = {} if start in done else {start: iter(edges[start])}
        while path:
            node, ahead = next(reversed(path.items()))
            following = next((need for need in ahead if need in edges and need not in done), None)
            if following is None:
                done.add(node)
                del path[node]
            elif following in path:
                yield list(path)[list(path).index(following) :]
            else:
                path[following] = iter(edges[following])


def _cycle_message(members: list[Dependent]) -> str:
    if len(members) == 1:
        return f"depends_on: {quote(members[0].id)} on line {members[0].line} depends on itself, so it can never run"
    named = [f"{quote(member.id)} (line {member.line})" for member in members]
    if len(named) > _CYCLE_CASES_SHOWN:
        named[_CYCLE_CASES_SHOWN - 1 : -1] = [f"{len(named) - _CYCLE_CASES_SHOWN} more"]
    return f"depends_on: these cases wait for each other in a cycle: {' → '.join([*named, quote(members[0].id)])}"


def _dependency_finding(code: str, message: str, file: str, case: Dependent) -> Finding:
    return Finding(code, "error", message, Origin(file, case.line, case.column), "depends_on", case.id)
