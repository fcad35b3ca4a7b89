"""The survey: one pass over the datasets of a plan that lints, counts the selected cases and collects dependencies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec import Struct

from evalloom.core.digest import digest_value, qualified_name
from evalloom.core.errors import usage_error
from evalloom.core.model import DatasetFacts
from evalloom.data.dataset import SAMPLE, Dataset
from evalloom.engine.cases import Rows, case_filter, dataset_cases, is_unnamed, python_cases
from evalloom.engine.lint import LintOptions, forget_files, lint_dataset, report_of
from evalloom.engine.plan import Plan, file_digest
from evalloom.engine.run import Needs, SelectedCase
from evalloom.engine.run.needs import NeedsCollector
from evalloom.files.rows import Refused
from evalloom.files.source import read_chunks
from evalloom.reports.lint import LintReport

_DEPENDENCY_MARKS = (b"depends_on", rb"\u005", rb"\u006", rb"\u007")
"""The name of the field as written in a file, and the beginnings of its characters as JSON escapes."""


class Survey(Struct, frozen=True):
    """Facts about the cases of a plan, collected before any of them runs."""

    facts: list[DatasetFacts]
    report: LintReport | None
    """The linter's report; None with --skip-invalid and for cases from Python, which are not linted."""
    cases: int
    first: SelectedCase | None
    needs: Needs
    unknown_dependencies: frozenset[tuple[str, str]]
    """The file and id of each dependency that no case of the file has."""


def survey(plan: Plan) -> Survey:
    """Read the datasets of a plan once. Raises a usage error for a dataset whose cases have no inputs."""
    reading = plan.reading
    options = LintOptions(reading.dialect, reading.mapping, reading.encoding, reading.rules, tool="evalloom run")
    forget_files(plan.catalog)
    cases = _CaseCollector(plan)
    checked = []
    datasets = list(plan.datasets())
    for dataset in datasets:
        if remark := dataset.dialect.lacks_inputs(dataset.sample):
            raise usage_error(remark.code, f"{dataset.source.name}: {remark.message}")
        consumer = cases.consumer(dataset)
        head = list(islice(dataset.peek(), SAMPLE)) if consumer is None else []
        if plan.options.skip_invalid:
            assert consumer is not None
            consumer(iter(dataset))
        else:
            checked.append(lint_dataset(dataset, plan.catalog, options, consumer))
            if consumer is None:
                # After the linter, which reads the whole file and so knows the names of its cases.
                first = next(dataset_cases(plan, dataset, iter(head), frozenset()), None)
                cases.add_all(first, checked[-1].cases)
    report = report_of(checked, options) if checked else None
    return Survey(
        # A dataset with errors may not be there at all.
        _facts(plan, datasets) if report is None or report.passed else [],
        report,
        cases.count,
        cases.first,
        cases.needs.result(is_unknown_error=plan.options.skip_invalid),
        cases.needs.unknown,
    )


def _facts(plan: Plan, datasets: list[Dataset]) -> list[DatasetFacts]:
    facts = [
        DatasetFacts(data.source.name, data.dialect.name, file_digest(data.source), str(data.mapping))
        for data in datasets
    ]
    if plan.python_cases:
        # By number, as in format 1: only an equal digest lets a batch be resumed.
        numbered = [
            msgspec.structs.replace(case, id=str(number), raw={**case.raw, "id": str(number)})
            if is_unnamed(case)
            else case
            for number, case in enumerate(plan.python_cases, 1)
        ]
        cases = msgspec.to_builtins(numbered, enc_hook=qualified_name)
        facts.append(DatasetFacts("<python>", "", digest_value(cases)))
    return facts


class _CaseCollector:
    """Counts the selected cases, keeps the first one, and collects the dependencies."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._is_selected = case_filter(plan)
        self._number = 0
        self.count = 0
        self.first: SelectedCase | None = None
        self.needs = NeedsCollector()
        has_dependencies = any(case.needs for case in plan.python_cases)
        for case in python_cases(plan):
            self._add(case, has_dependencies)

    def consumer(self, dataset: Dataset) -> Callable[[Rows], None] | None:
        """Return the function that reads the rows of a dataset; None where the linter's count of cases will do."""
        plan, options = self._plan, self._plan.options
        is_selection = options.tags or options.filter or options.skip_invalid or dataset.dialect.same_case
        has_dependencies = may_have_dependencies(dataset)
        if not is_selection and not has_dependencies:
            return None

        def consume(rows: Rows) -> None:
            for case in dataset_cases(plan, dataset, rows, frozenset()):
                self._add(case, has_dependencies)

        return consume

    def add_all(self, first: SelectedCase | None, count: int) -> None:
        """Count the cases of a dataset that the linter has read; all of them are selected."""
        limit = self._plan.options.limit
        self.first = self.first or (first if limit is None or self.count < limit else None)
        self.count = self.count + count if limit is None else min(limit, self.count + count)
        self._number += count

    def _add(self, case: SelectedCase, has_dependencies: bool) -> None:
        self._number += 1
        limit = self._plan.options.limit
        is_selected = (limit is None or self.count < limit) and self._is_selected(case.case)
        if has_dependencies:
            # Elsewhere the collector stays empty: it grows with the cases, and a dependency is on a case of its file.
            self.needs.add(msgspec.structs.replace(case, number=self._number), is_selected)
        if is_selected:
            self.count += 1
            self.first = self.first or case


def may_have_dependencies(dataset: Dataset) -> bool:
    """Whether `depends_on` may be in a dataset. Searching its bytes costs far less than reading its records.

    Under another name, or in YAML, which has many ways to write one, only the records tell.
    """
    if dataset.dialect.needs is None or dataset.mapping.names or dataset.layout == "yaml":
        return dataset.dialect.needs is not None
    before = b""
    with suppress(Refused):
        for chunk in read_chunks(dataset.source):
            text = before + chunk
            if any(mark in text for mark in _DEPENDENCY_MARKS):
                return True
            before = chunk[-len(_DEPENDENCY_MARKS[0]) :]
    return False
