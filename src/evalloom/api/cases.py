"""`evalloom.read` and `evalloom.check`, and the cases that Python code passes to `evalloom.evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from evalloom import catalog
from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Checked, Origin, Record
from evalloom.core.text import type_name
from evalloom.core.verbs import verb
from evalloom.data.checks import FIELD
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.identity import FileNames, Namer
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import validate
from evalloom.files.source import source_of

Cases = str | Path | Dataset | Iterable[Case | Record]
"""A file, a dataset, or the cases themselves: as Case, or as records in any dialect."""


@verb()
def read(path: str | Path, dialect: str = "", mapping: str = "", encoding: str = "") -> Dataset:
    """Open the dataset in a file: `read("cases.jsonl").cases()` yields its cases."""
    return Dataset(source_of(path, encoding), catalog.load_for_python().formats, dialect, parse_mapping(mapping))


@verb()
def check(path: str | Path, dialect: str = "", mapping: str = "", rules: Rules = Rules()) -> Checked:
    """Check a file, and return the findings of the linter."""
    dataset = read(path, dialect, mapping)
    dataset.dialect.forget()
    return validate(dataset, rules)


def paths_of(dataset: Cases | None) -> tuple[str, ...]:
    """Return the file of a dataset, if it has one."""
    if isinstance(dataset, Dataset):
        if dataset.source.path is None:
            raise usage_error("no_dataset", "evaluate: a dataset from stdin cannot be read twice; save it to a file")
        return (str(dataset.source.path),)
    return (str(dataset),) if isinstance(dataset, str | Path) else ()


def python_cases(dataset: Cases | None) -> tuple[Case, ...]:
    """Return the cases that are passed as objects instead of a file."""
    if dataset is None or isinstance(dataset, str | Path | Dataset):
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
