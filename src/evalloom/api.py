"""The Python API for scripts, notebooks and tests: `evalloom.read`, `evalloom.check`, `evalloom.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalloom import catalog
from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Check, Checked, Origin, Record
from evalloom.core.text import type_name
from evalloom.data.checks import FIELD
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.identity import FileNames, Namer
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import validate
from evalloom.engine.evaluate import InvalidData
from evalloom.engine.evaluate import evaluate as run_plan
from evalloom.engine.outputs import reporters_for, write_outputs
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.results import Results
from evalloom.engine.resume import Resume
from evalloom.engine.until_sure import MARGIN, Question
from evalloom.files.source import source_of
from evalloom.files.write import refuse_unwritable
from evalloom.settings import RunSettings
from evalloom.targets import build_callable

_SHOWN = 20
"""The number of findings to warn about when the data has errors."""

Cases = str | Path | Dataset | Iterable[Case | Record]
"""A file, a dataset, or the cases themselves: as Case, or as records in any dialect."""


def read(path: str | Path, dialect: str = "", mapping: str = "", encoding: str = "") -> Dataset:
    """Open the dataset in a file: `read("cases.jsonl").cases()` yields its cases."""
    return Dataset(source_of(path, encoding), catalog.load_for_python().formats, dialect, parse_mapping(mapping))


def check(path: str | Path, dialect: str = "", mapping: str = "", rules: Rules = Rules()) -> Checked:
    """Check a file, and return the findings of the linter."""
    dataset = read(path, dialect, mapping)
    dataset.dialect.forget()
    return validate(dataset, rules)


def evaluate(
    dataset: Cases,
    target: str | Record | Callable[..., Any],
    checks: Iterable[Check | Record] = (),
    profiles: str | Iterable[str] = (),
    *,
    judge: str = "",
    config: str | Path = "",
    resume: bool = False,
    until_sure: bool = False,
    margin: float | None = None,
    against: str = "",
    warn: Callable[[str], None] = print,
    **options: Any,
) -> Results:
    """Run cases against a target, score them and write a batch, as `evalloom run` does.

    `target` is a function, or a value of `--target`. `checks` are added to those of the dataset. `options` are
    those of `run:` in evalloom.yaml: concurrency, repeat, limit, tags, filter, cache, allow_code, output, max_cost …
    """
    loaded = catalog.load_for_python()
    unknown = options.keys() - set(RunSettings.__struct_fields__)
    if unknown:
        allowed = ", ".join(RunSettings.__struct_fields__)
        raise usage_error("bad_option", f"evaluate: expected options among {allowed}, got {', '.join(sorted(unknown))}")
    names = [profiles] if isinstance(profiles, str) else list(profiles)
    plan = prepare(
        RunRequest(
            datasets=_paths(dataset),
            config=str(config),
            target=build_callable(target) if callable(target) else target,
            judge=judge,
            options={**options, **({"profiles": names} if names else {})},
            python_cases=_python_cases(dataset),
            question=_question(until_sure, margin, against),
        ),
        loaded,
    )
    added = tuple(check if isinstance(check, Check) else loaded.matchers.parse(check) for check in checks)
    functions = {**plan.functions, **loaded.matchers.functions_of(added)}
    plan = msgspec.structs.replace(plan, checks=plan.checks + added, functions=functions)
    outputs = reporters_for(plan.options.output, loaded.reporters)
    for path, _ in outputs:
        refuse_unwritable(path)
    try:
        results = run_plan(plan, resume=Resume(newest=resume), warn=warn)
    except InvalidData as error:
        findings = [finding for dataset_report in error.report.checked for finding in dataset_report.findings]
        for finding in findings[:_SHOWN]:
            warn(str(finding))
        raise
    write_outputs(results, outputs, loaded)
    return results


def _question(until_sure: bool, margin: float | None, against: str) -> Question | None:
    if until_sure:
        return Question(MARGIN if margin is None else margin, against)
    if margin is not None or against:
        raise usage_error("bad_option", "evaluate: margin and against go with until_sure=True")
    return None


def _paths(dataset: Cases) -> tuple[str, ...]:
    if isinstance(dataset, Dataset):
        if dataset.source.path is None:
            raise usage_error("no_dataset", "evaluate: a dataset from stdin cannot be read twice; save it to a file")
        return (str(dataset.source.path),)
    return (str(dataset),) if isinstance(dataset, str | Path) else ()


def _python_cases(dataset: Cases) -> tuple[Case, ...]:
    """Return the cases that are passed as objects instead of a file."""
    if isinstance(dataset, str | Path | Dataset):
        return ()
    cases = [case for number, item in enumerate(dataset, 1) for case in _cases(item, number)]
    if not cases:
        raise usage_error("no_dataset", "evaluate: expected a file or cases, got no case")
    namer = Namer(FileNames(lambda: cases, beside_inputs=catalog.load_for_python().formats.beside_inputs))
    return tuple(_with_raw(case, namer.name(case).case.id) for case in cases)


def _cases(item: Case | Record, number: int) -> Iterator[Case]:
    """Yield the cases of an item; a record with parameters has several."""
    if isinstance(item, dict):
        # A record without an id would be recognised as a replay row, with its expectation among the inputs.
        has_expectation = any(isinstance(name, str) and name.startswith("expected") for name in item)
        is_pipeline = has_expectation or isinstance(item.get(FIELD), list)
        with_id = {"id": str(number), **item} if is_pipeline else item
        formats = catalog.load_for_python().formats
        dialect, _ = formats.recognise(with_id)
        # Parameters become part of an id (PIPE-16).
        for record in dialect.multiplied(with_id if "parameters" in item else item):
            case = formats.case(dialect, record, Origin("<python>", number))
            yield case if case.id else msgspec.structs.replace(case, id=dialect.optional_id(record))
    elif isinstance(item, Case):
        yield item
    else:
        message = f"evaluate: expected a file or cases, got {type_name(item)} as case {number}"
        raise usage_error("no_dataset", message)


def _with_raw(case: Case, id: str) -> Case:
    """Copy the whole case into `raw`, so that the batch can be scored again without the Python program."""
    bare = msgspec.structs.replace(case, raw={})
    return msgspec.structs.replace(bare, id=id, raw=msgspec.to_builtins(_without_functions(bare)))


def _without_functions(case: Case) -> Case:
    """Remove functions from the options of checks, because JSON cannot store them."""
    checks = tuple(
        msgspec.structs.replace(check, options={n: v for n, v in check.options.items() if not callable(v)})
        for check in case.checks
    )
    return msgspec.structs.replace(case, checks=checks)
