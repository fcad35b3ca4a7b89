"""Selected cases: the records of a plan's datasets as cases, filtered, numbered, each with its checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from evalloom.core.digest import digest_value
from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Check, Origin, Record
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.engine.run import SelectedCase, numbered
from evalloom.engine.system import Catalog
from evalloom.files.rows import Problem, Row

if TYPE_CHECKING:
    from evalloom.core.expressions import Expression
    from evalloom.engine.plan import Plan

Rows = Iterator[Row | Problem]


def select_cases(plan: Plan, by_number: bool = False) -> Iterator[SelectedCase]:
    """Yield the cases of a plan that --tags, --filter and --limit select, in the order of the datasets.

    `by_number` gives them the ids that they have in batches of format 1.
    """
    is_selected = case_filter(plan)
    cases = all_cases(plan, by_number)
    return islice((item for item in cases if is_selected(item.case)), plan.options.limit)


def all_cases(plan: Plan, by_number: bool = False) -> Iterator[SelectedCase]:
    """Yield the cases of a plan before any selection."""
    cases = _read_cases(plan)
    return numbered(map(with_old_id, cases) if by_number else cases)


def with_old_id(item: SelectedCase) -> SelectedCase:
    """Return a case with the id that it has in batches of format 1: without an id of its own, its number."""
    if not item.position:
        return item
    case = msgspec.structs.replace(item.case, id=str(item.position))
    return msgspec.structs.replace(item, case=case, position=0, is_unnamed=False)


def case_filter(plan: Plan) -> Callable[[Case], bool]:
    """Return the predicate of --tags and --filter."""
    tags, text = frozenset(plan.options.tags), plan.options.filter
    expression = compile_filter(text) if text else None

    def is_selected(case: Case) -> bool:
        if tags and tags.isdisjoint(case.tags):
            return False
        return expression is None or expression.holds(_filter_names(case))

    return is_selected


def compile_filter(text: str) -> Expression:
    """Compile the expression of --filter."""
    from evalloom.core import expressions  # deferred: few runs have a filter

    try:
        return expressions.compile(text)
    except expressions.ExpressionError as error:
        raise usage_error("bad_filter", f"--filter {text!r}: {error}") from None


def _filter_names(case: Case) -> Record:
    return {
        **case.meta,
        **case.inputs,
        "id": case.id,
        "tags": list(case.tags),
        "inputs": case.inputs,
        "meta": case.meta,
        "raw": case.raw,
    }


def _read_cases(plan: Plan) -> Iterator[SelectedCase]:
    yield from python_cases(plan)
    for dataset in plan.datasets():
        yield from dataset_cases(plan, dataset, iter(dataset), plan.unknown_dependencies)


def python_cases(plan: Plan) -> Iterator[SelectedCase]:
    """Yield the cases that were passed from Python."""
    for number, case in enumerate(plan.python_cases, 1):
        unnamed = is_unnamed(case)
        yield SelectedCase(plan.with_checks(case), position=number if unnamed else 0, is_unnamed=unnamed)


def is_unnamed(case: Case) -> bool:
    """Whether a case from Python has no id of its own: `raw` is the case as it was passed."""
    return case.raw.get("id") == ""


def dataset_cases(
    plan: Plan, dataset: Dataset, rows: Rows, unknown_dependencies: frozenset[tuple[str, str]]
) -> Iterator[SelectedCase]:
    """Yield the cases in the rows of one dataset.

    With --skip-invalid a case with errors, or one that depends on an unknown id, carries its error message.
    """
    if plan.options.skip_invalid:
        cases = _with_errors(plan, dataset, rows, unknown_dependencies)
    else:
        name = dataset.dialect.name
        cases = (
            SelectedCase(item.case, name, position=item.position, is_unnamed=item.is_unnamed)
            for item in dataset.named_cases(rows)
            if not isinstance(item, Problem)
        )
    contract, fit = plan.reading.rules.contract, dataset.dialect.fit
    for item in _without_repeated_profiles(dataset, cases):
        case = fit(item.case, contract) if contract is not None and fit is not None else item.case
        case = plan.with_checks(case)
        yield item if case is item.case else msgspec.structs.replace(item, case=case)


def _without_repeated_profiles(dataset: Dataset, cases: Iterator[SelectedCase]) -> Iterator[SelectedCase]:
    """Drop repeated cases of a result file that holds each case once per profile."""
    same_case = dataset.dialect.same_case
    if same_case is None:
        return cases
    by_profile: Counter[tuple[str, str]] = Counter()
    most: Counter[str] = Counter()

    def is_new(item: SelectedCase) -> bool:
        case, profile = same_case(item.case.raw)
        if not case:
            return True
        # A case that is in the file several times under one profile counts as several cases.
        case = digest_value(case)
        by_profile[case, profile] += 1
        is_more = by_profile[case, profile] > most[case]
        most[case] += is_more
        return is_more

    return filter(is_new, cases)


def _with_errors(
    plan: Plan, dataset: Dataset, rows: Rows, unknown_dependencies: frozenset[tuple[str, str]]
) -> Iterator[SelectedCase]:
    dialect, namer = dataset.dialect, dataset.namer()
    identities: set[str | int] = set()
    for item in rows:
        if isinstance(item, Problem):
            if item.severity == "error":
                origin = Origin(item.file or dataset.source.name, *item.place)
                case = Case(f"line {item.place.line}", {}, origin=origin)
                yield SelectedCase(case, dialect.name, f"{item.message} [{item.code}]")
        elif dialect.is_case(item.value):
            for record in dialect.multiplied(item.value):
                named = namer.name(dataset.case(record, dataset.origin(item)))
                case = named.case
                # Each record of a matrix by itself: the parameters decide which of them is invalid.
                errors = [
                    f"{remark.message} [{remark.code}]"
                    for remark in (*dialect.findings(record, plan.reading.rules), *dataset.check_list_errors(record))
                    if remark.severity == "error"
                ]
                errors += [
                    f"depends_on: no case of this file has the id {quote(id)} [unknown_dependency]"
                    for id in case.needs
                    if (case.origin.file, id) in unknown_dependencies
                ]
                identity = dialect.identity(record)
                if is_duplicate := identity is not None and identity in identities:
                    message = f"{dialect.id_field}: {identity!r} was there before; ids must be unique [duplicate_id]"
                    errors.append(message)
                if identity is not None:
                    identities.add(identity)
                yield SelectedCase(
                    case,
                    dialect.name,
                    "; ".join(errors),
                    is_duplicate,
                    position=named.position,
                    is_unnamed=named.is_unnamed,
                )


def with_checks(case: Case, further: Iterable[Check], config: Record, catalog: Catalog) -> Case:
    """Add checks to those of a case, or replace them with those that the kind of its batch asks for."""
    further = tuple(further)
    if kind := catalog.batch_kind(config) if config else None:
        return msgspec.structs.replace(case, checks=kind.checks(case, further, config))
    return msgspec.structs.replace(case, checks=case.checks + further) if further else case
