"""One dataset through the linter: record by record, then what only the whole file shows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import msgspec

from evalloom.core.model import Checked, Finding, Origin, Severity
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.mapping import proposals
from evalloom.data.validate import parallel
from evalloom.data.validate.keys import Keys
from evalloom.data.validate.needs import dependency_findings, moved
from evalloom.data.validate.tally import Block, Checker, Dependent, Kept
from evalloom.files.rows import Problem, Row

_BLOCK_ROWS = 20_000
_SHARED_ROWS = 500
"""How many rows are held at once when somebody else reads them too."""

Consumer = Callable[[Iterator[Row | Problem]], None]


def validate(
    dataset: Dataset,
    rules: Rules = Rules(),
    hints: bool = True,
    more: Iterable[Finding] = (),
    consumer: Consumer | None = None,
) -> Checked:
    """The findings of one dataset; `hints` adds remarks on the file as a whole, its name, dialect and field names.

    `more` are findings from elsewhere about the same source, to be counted and listed with the others. A `consumer`
    reads every row in the same pass, so the file is then read in this process.
    """
    checker = Checker(dataset.source.name, dataset.dialect, rules, dataset.mapping)
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
    """The blocks of a file put together, with what must hold over all of them: ids, pairs and dependencies."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._kept = Kept()
        self._ids = Keys()
        self._pairs = Keys()
        self._sides = bytearray()
        self._dependents: list[Dependent] = []
        self._bases: set[str] = set()
        self.lines = 0
        self.cases = 0
        self.findings: list[Finding] = []
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self.full_codes = self._kept.full_codes

    def add_all(self, dataset: Dataset, consumer: Consumer | None = None) -> None:
        """Checks a dataset in this process, in stretches, so that memory does not grow with it."""
        items = iter(dataset)
        if consumer is not None:
            checked = self._checked(items)
            consumer(checked)
            deque(checked, maxlen=0)  # every row is checked, wherever the consumer stopped
        else:
            for first in items:
                stretch = chain((first,), islice(items, _BLOCK_ROWS - 1))
                self.add(self._checker.check(stretch, self.full_codes()))
        self.lines = dataset.lines

    def _checked(self, items: Iterator[Row | Problem]) -> Iterator[Row | Problem]:
        """Yields the rows that it checks."""
        while stretch := list(islice(items, _SHARED_ROWS)):
            self.add(self._checker.check(stretch, self.full_codes()))
            yield from stretch

    def add(self, block: Block) -> None:
        """Takes over a block that begins behind the lines so far."""
        for finding in block.findings:
            if self._kept.has_room(finding.code):
                self.findings.append(_moved(finding, self.lines))
        self.counts.update(block.counts)
        self.cases += block.cases
        self._ids.extend(block.ids, self.lines)
        self._pairs.extend(block.pairs, self.lines)
        self._sides += block.sides
        self._dependents += moved(block.dependents, self.lines)
        self._bases.update(block.bases)
        self.lines += block.lines

    def add_finding(self, finding: Finding) -> None:
        self.counts[finding.code, finding.severity] += 1
        if self._kept.has_room(finding.code):
            self.findings.append(finding)

    def close(self) -> None:
        """Adds what only the whole file shows."""
        for finding in self._duplicate_ids():
            self.add_finding(finding)
        if self._checker.dialect.ids_increase:
            for finding in self._ids_that_fall():
                self.add_finding(finding)
        for finding in self._unpaired():
            self.add_finding(finding)
        for finding in dependency_findings(self._checker.file, self._dependents, self._bases, self._ids):
            self.add_finding(finding)

    def _duplicate_ids(self) -> Iterator[Finding]:
        for first, index in self._ids.repeats():
            id, line, first_line = self._ids.key(index), self._ids.line(index), self._ids.line(first)
            field = self._checker.dialect.id_field
            message = f"{field}: {quote(id)} on line {line} is already the id on line {first_line}; ids must be unique"
            yield self._at(line, "duplicate_id", "error", message, field, str(id))

    def _ids_that_fall(self) -> Iterator[Finding]:
        for index in self._ids.falls():
            before, id, line = self._ids.key(index - 1), self._ids.key(index), self._ids.line(index)
            message = f"id: expected more than {before}, the id before it, got {id}; ids should increase"
            yield self._at(line, "id_not_increasing", "warning", message, "id", str(id))

    def _unpaired(self) -> Iterator[Finding]:
        pairing = self._checker.dialect.pairing
        if pairing is None:
            return
        for index in self._pairs.one_sided(self._sides):
            line, side = self._pairs.line(index), self._sides[index]
            has, lacks = pairing.sides if side == 1 else reversed(pairing.sides)
            pair = quote(self._pairs.key(index))
            message = f"{pairing.field}: {pair} has {has} cases but no {lacks} one to compare with"
            case_id = self._ids.at_line(line)
            yield self._at(line, "unpaired_pair_id", "warning", message, pairing.field, str(case_id or ""))

    def _at(self, line: int, code: str, severity: Severity, message: str, field: str, case_id: str) -> Finding:
        return Finding(code, severity, message, Origin(self._checker.file, line, 1), field, case_id)


def _moved(finding: Finding, lines: int) -> Finding:
    if not lines or not finding.origin.line:
        return finding
    origin = msgspec.structs.replace(finding.origin, line=finding.origin.line + lines)
    return msgspec.structs.replace(finding, origin=origin)


def _file_findings(dataset: Dataset, total: _Total, hints: bool) -> Iterator[Finding]:
    """Remarks on the file itself: nothing in it, a doubtful dialect, names from elsewhere, an unusual file name."""
    here = Origin(dataset.source.name)
    is_refused = any(finding.severity == "error" and not finding.origin.line for finding in total.findings)
    if not total.cases and not is_refused:
        yield Finding("no_cases", "error", "expected at least one case, got none", here)
    for remark in dataset.mapping.unknown(dataset.raw_sample):
        yield Finding(remark.code, remark.severity, remark.message, here)
    if not hints:
        return
    if len(dataset.votes) > 1 and not dataset.is_given:
        shown = ", ".join(f"{name} ({count})" for name, count in dataset.votes)
        message = (
            f"the records look like several dialects: {shown}; read as {dataset.dialect.name}. Say which with --dialect"
        )
        yield Finding("doubtful_dialect", "warning", message, here)
    remarks = list(proposals(dataset.sample, dataset.dialect, dataset.formats))
    if not remarks and (unusual := dataset.dialect.file_name(Path(dataset.source.name).name, dataset.source.suffix)):
        remarks.append(unusual)
    for remark in remarks:
        yield Finding(remark.code, remark.severity, remark.message, here)
