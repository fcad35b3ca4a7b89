"""`parameters` of a pipeline record: expands one record into many, replacing `{name}` (PIPE-16)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Record, Remark, error, show_path
from evalloom.core.text import shorten, type_name

MOST_CASES = 10_000
"""The maximum number of cases per record."""
MOST_TEXT = 8 * 1024 * 1024
MOST_TEXT_OF_ALL = 256 * 1024 * 1024
"""The maximum size of one expanded case, and of all cases of one record."""
_LONGEST_VALUE = 40
_NOT_FILLED = frozenset(("id", "parameters", "conditions"))
"""An id gets its values in brackets; conditions are expressions and can read `inputs` instead."""
_HOLE = lazy_pattern(r"\{([^{}]+)\}")
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def multiply(record: Record, id: str | None) -> Iterator[Record]:
    """Expand a record; yield it unchanged if it has no `id`, no parameters or invalid parameters."""
    parameters = record.get("parameters")
    if parameters is None or id is None or next(findings(record), None) is not None:
        yield record
        return
    template = {name: value for name, value in record.items() if name != "parameters"}
    if isinstance(parameters, list):
        choices: Iterable[Record] = parameters
    else:
        choices = (dict(zip(parameters, values, strict=True)) for values in product(*parameters.values()))
    for new_id, values in _ids(id, choices):
        filled = {name: value if name in _NOT_FILLED else _fill(value, values) for name, value in template.items()}
        if isinstance(tags := template.get("tags"), list):
            # A tag is a text, even if the value of its parameter is not.
            filled["tags"] = [
                _as_text(_fill(tag, values)) if isinstance(tag, str) else _fill(tag, values) for tag in tags
            ]
        yield {**filled, "id": new_id}


def findings(record: Record) -> Iterator[Remark]:
    """Yield the errors in the parameters of a record."""
    parameters = record.get("parameters")
    shape_findings = list(_shape_findings(parameters))
    yield from shape_findings
    if not parameters:
        return
    try:
        _fill(record, {})
        if not shape_findings:
            yield from list(_size_findings(record)) or _repeat_findings(record)
    except RecursionError:
        yield _parameter_error((), "the record is nested too deeply to be filled in")


def _shape_findings(parameters: Any) -> Iterator[Remark]:
    if isinstance(parameters, dict):
        yield from _product_findings(parameters)
    elif isinstance(parameters, list):
        yield from _list_findings(parameters)
    elif parameters is not None:
        expected = "an object {name: [values]} or a list of objects"
        yield _parameter_error((), f"expected {expected}, got {type_name(parameters)}")


def _product_findings(parameters: Record) -> Iterator[Remark]:
    if not parameters:
        yield _parameter_error((), "is empty, so the record makes no case. Add values, or remove it")
    for name, values in parameters.items():
        if not isinstance(values, list):
            yield _parameter_error((name,), f"expected a list of values, got {type_name(values)}")
        elif not values:
            yield _parameter_error((name,), "expected a list of values, got an empty one, so the record makes no case")
    count = math.prod(len(values) for values in parameters.values() if isinstance(values, list))
    if count > MOST_CASES:
        yield _parameter_error((), f"expected at most {MOST_CASES:,} cases of one record, got {count:,}")


def _list_findings(parameters: list[Any]) -> Iterator[Remark]:
    if not parameters:
        yield _parameter_error((), "is empty, so the record makes no case. Add values, or remove it")
    if len(parameters) > MOST_CASES:
        yield _parameter_error((), f"expected at most {MOST_CASES:,} cases of one record, got {len(parameters):,}")
    for number, values in enumerate(parameters):
        if not isinstance(values, dict) or not values:
            got = "an empty one" if values == {} else type_name(values)
            yield _parameter_error((number,), f"expected an object of values by name, got {got}")


def _repeat_findings(record: Record) -> Iterator[Remark]:
    """Yield an error for each value that is there more than once: it would make cases with one id (PIPE-4)."""
    parameters = record["parameters"]
    lists: dict[Path, list[Any]] = (
        {(name,): parameters[name] for name in parameters} if isinstance(parameters, dict) else {(): parameters}
    )
    for path, values in lists.items():
        numbers: dict[str, list[int]] = {}
        for number, value in enumerate(values):
            numbers.setdefault(json.dumps(value, sort_keys=True), []).append(number)
        for first, second, *_ in filter(lambda same: len(same) > 1, numbers.values()):
            shown = show_path(("parameters", *path, second))
            message = (
                f"{shown}: is the same as {show_path(('parameters', *path, first))}, so two cases would have one id"
            )
            yield error("duplicate_id", ("parameters", *path, second), f"{message}. Remove one of them")


def _size_findings(record: Record) -> Iterator[Remark]:
    """Yield an error if the expanded record would be too large, without expanding it."""
    holes: Counter[str] = Counter()
    plain = sum(_size(value, holes) for name, value in record.items() if name not in _NOT_FILLED)
    largest, total = _filled_sizes(record["parameters"], plain, holes)
    if largest > MOST_TEXT:
        yield _parameter_error(
            (), f"expected at most {MOST_TEXT >> 20} MB of text in a case, got {largest / 2**20:,.0f} MB"
        )
    elif total > MOST_TEXT_OF_ALL:
        expected = f"expected at most {MOST_TEXT_OF_ALL >> 20} MB of text in all cases of one record"
        yield _parameter_error((), f"{expected}, got {total / 2**20:,.0f} MB")


def _filled_sizes(parameters: Any, plain: int, holes: Counter[str]) -> tuple[int, int]:
    """Return the size of the largest case, and of all cases together."""

    def size(name: str, value: Any) -> int:
        text = len(_as_text(value))
        return holes[name] * text + min(len(name), _LONGEST_VALUE) + min(text, _LONGEST_VALUE)

    if isinstance(parameters, list):
        sizes = [plain + sum(size(*item) for item in values.items()) for values in parameters]
        return max(sizes), sum(sizes)
    count = math.prod(map(len, parameters.values()))
    by_name = [[size(name, value) for value in values] for name, values in parameters.items()]
    # Each value of a parameter occurs in an equal share of the cases.
    return plain + sum(map(max, by_name)), count * plain + sum(sum(sizes) * count // len(sizes) for sizes in by_name)


def _size(value: Any, holes: Counter[str]) -> int:
    """Return the length of all texts in a value, and count its `{name}` placeholders in `holes`."""
    if isinstance(value, str):
        holes.update(_HOLE.findall(value))
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + _size(inner, holes) for name, inner in value.items())
    return sum(_size(inner, holes) for inner in value) if isinstance(value, list) else 1


def _parameter_error(path: tuple[str | int, ...], message: str) -> Remark:
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return error("bad_parameters", ("parameters", *path), f"parameters{where}: {message}")


def _ids(id: str, choices: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """Yield each choice with a unique id; ids that are equal after truncation are numbered."""
    taken: set[str] = set()
    for values in choices:
        shown = ",".join(f"{_in_id(name)}={_in_id(value)}" for name, value in values.items())
        new_id, number = f"{id}[{shown}]", 1
        while new_id in taken:
            number += 1
            new_id = f"{id}[{shown}]#{number}"
        taken.add(new_id)
        yield new_id, values


def _in_id(value: Any) -> str:
    return shorten(_CONTROL.sub("�", _as_text(value)), _LONGEST_VALUE)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fill(value: Any, values: Record) -> Any:
    """Replace every `{name}` in a value; a text that is only `{name}` becomes the value itself."""
    if isinstance(value, str):
        if "{" not in value:
            return value
        match = _HOLE.fullmatch(value)
        if match and match[1] in values:
            return values[match[1]]
        return _HOLE.sub(lambda hole: _as_text(values[hole[1]]) if hole[1] in values else hole[0], value)
    if isinstance(value, dict):
        return {name: _fill(inner, values) for name, inner in value.items()}
    return [_fill(inner, values) for inner in value] if isinstance(value, list) else value
