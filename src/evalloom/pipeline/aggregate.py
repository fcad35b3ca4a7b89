"""What an aggregator step makes of a list (PIPE-9): five strategies and the renaming of their results, without any I/O.

The sixth, custom, is code of the user's: its options are read here, and it runs elsewhere.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from evalloom.core import expressions
from evalloom.core.errors import CallError, did_you_mean
from evalloom.core.expressions import Expression, ExpressionError
from evalloom.core.model import Record, quote, type_name
from evalloom.core.text import listed
from evalloom.targets.template import MISSING

STRATEGIES = ("concat", "stats", "filter", "group", "summary", "custom")
MOST_VALUES = 50
"""How many different values a field may have to be counted where nobody asked for it by name."""
_FIGURES = ("sum", "mean", "min", "max", "median", "stdev")
_COUNTED = ("distribution", "counts", "rates")

Fault = tuple[str, str]
"""A key of a step, and what is wrong with it."""


class Aggregation(Struct, frozen=True):
    """The options of an aggregator step."""

    strategy: str = ""
    separator: str = "\n"
    fields: tuple[str, ...] = ()
    condition: str = ""
    group_by: str = ""
    summary_fields: tuple[str, ...] = ()
    include_distribution: bool = False
    output: Mapping[str, str] = {}
    code: str = ""
    language: str = "python"


# -- options ------------------------------------------------------------------------------------------

_ALIASES = {"strategy": "aggregation_strategy", "code": "aggregation_code"}
_NEEDED = {"filter": "condition", "group": "group_by", "custom": "code"}
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "strategy": ("a string", lambda given: isinstance(given, str)),
    "separator": ("a string", lambda given: isinstance(given, str)),
    "fields": ("a list of names", lambda given: _are_texts(given)),
    "condition": ("a string", lambda given: isinstance(given, str)),
    "group_by": ("a string", lambda given: isinstance(given, str)),
    "summary_fields": ("a list of names", lambda given: _are_texts(given)),
    "include_distribution": ("true or false", lambda given: isinstance(given, bool)),
    "output": (
        "an object such as {average: fields.rating.mean}",
        lambda given: isinstance(given, dict) and _are_texts(list(given.values())),
    ),
    "code": ("a string", lambda given: isinstance(given, str)),
    "language": ("a string", lambda given: isinstance(given, str)),
}


def read_options(step: Record) -> tuple[Aggregation, list[Fault]]:
    """The options that a step gives, and what is wrong with them; a key with a fault keeps its default."""
    faults: list[Fault] = []
    given: Record = {}
    for name, (expected, fits) in _KINDS.items():
        key, value = _given(step, name, faults)
        if value is None:
            continue
        if fits(value):
            given[name] = tuple(value) if isinstance(value, list) else value
        else:
            shown = quote(value) if isinstance(value, str | int | float) else type_name(value)
            faults.append((key, f"expected {expected}, got {shown}"))
    options = Aggregation(**given)
    told = {key for key, _ in faults}
    faults += (fault for fault in _misfits(options, step) if fault[0] not in told)
    return options, faults


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) and one for one in given)


def _given(step: Record, name: str, faults: list[Fault]) -> tuple[str, Any]:
    """The key under which an option stands, and its value; both of its names may be used where they agree."""
    key = _key(step, name)
    if key != name and step.get(name) not in (None, step.get(key)):
        faults.append((name, f"{name} and {key} differ: {quote(step[name])} and {quote(step[key])}. Keep one of them"))
    return key, step.get(key)


def _key(step: Record, name: str) -> str:
    """Which of its names an option has in a step; the long one where it has none."""
    long = _ALIASES.get(name, name)
    return name if step.get(long) is None and step.get(name) is not None else long


def _misfits(options: Aggregation, step: Record) -> Iterable[Fault]:
    """What is wrong with options that are of the right types."""
    strategy = options.strategy
    if strategy not in STRATEGIES:
        got = f"{quote(strategy)}{did_you_mean(strategy, STRATEGIES)}" if strategy else "nothing"
        yield _key(step, "strategy"), f"expected {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}, got {got}"
    needed = _NEEDED.get(strategy, "")
    if needed and not getattr(options, needed).strip():
        yield _key(step, needed), f"the strategy {strategy} needs {_key(step, needed)}"
    elif options.condition:
        try:
            expressions.compile(options.condition)
        except ExpressionError as fault:
            yield "condition", f"{quote(options.condition)}: {fault}"
    if options.language.lower() != "python":
        yield "language", f"only Python code is run, got {quote(options.language)}"


# -- strategies ---------------------------------------------------------------------------------------


def aggregate(items: list[Any], options: Aggregation) -> Any:
    """What a strategy other than custom makes of the items. Raises CallError, which names the key.

    An item that failed is a slot `{"error": …}`: it counts among all, and nothing is looked for in it.
    """
    if not isinstance(items, list | tuple):
        raise _bad("items", f"expected a list, got {type_name(items)}")
    strategy = _STRATEGIES.get(options.strategy)
    if strategy is None:
        expected = ", ".join(_STRATEGIES)
        raise _bad("strategy", f"expected one of {expected}, got {quote(options.strategy)}")
    return strategy([item for item in items if not isinstance(item, FailedItem)], options, len(items))


class FailedItem(dict[str, Any]):
    """What stands in the slot of an item of a batch that failed: `{"error": …}`, as nothing else that looks like it."""

    def __init__(self, error: str) -> None:
        super().__init__(error=error)


def _bad(key: str, message: str) -> CallError:
    return CallError("bad_aggregation", f"{key}: {message}")


def _concat(items: list[Any], options: Aggregation, total: int) -> str:
    if not options.fields:
        return options.separator.join(map(_text, items))
    readers = [_reader(field) for field in options.fields]
    chosen = ([value for read in readers if (value := read(item)) is not MISSING] for item in items)
    return options.separator.join(", ".join(map(_text, values)) for values in chosen if values)


def _filter(items: list[Any], options: Aggregation, total: int) -> list[Any]:
    holds = _compiled(options.condition).holds
    return [item for item in items if holds({**item, "item": item} if isinstance(item, dict) else {"item": item})]


def _group(items: list[Any], options: Aggregation, total: int) -> dict[str, list[Any]]:
    if not options.group_by:
        raise _bad("group_by", "the strategy group needs group_by")
    read = _reader(options.group_by)
    groups: dict[str, list[Any]] = {}
    for item in items:
        value = read(item)
        groups.setdefault("null" if value is MISSING else _word(value), []).append(item)
    return groups


def _stats(items: list[Any], options: Aggregation, total: int) -> Record:
    columns = {**_columns(items), **_columns(items, options.fields)}
    numeric = [field for field, values in columns.items() if any(map(_is_number, values))]
    fields = options.fields or tuple(numeric)
    worded = {field: values for field, values in columns.items() if field not in numeric}
    counts = _counts(worded, options.fields) if options.include_distribution else {}
    result = _totals(items, total) | {"fields": _figures_of(columns, fields)}
    if options.include_distribution:
        result["distribution"] = counts
    if options.group_by:
        groups = _group(items, options, total)
        result["groups"] = {key: _described(inside, fields, tuple(counts)) for key, inside in groups.items()}
    return result


def _described(items: list[Any], fields: tuple[str, ...], worded: tuple[str, ...]) -> Record:
    """The same for one group: figures of the same fields, and counts of the same others."""
    result = _totals(items, len(items)) | {"fields": _figures_of(_columns(items, fields), fields)}
    return result | {"distribution": _counts(_columns(items, worded), worded)} if worded else result


def _figures_of(columns: dict[str, list[Any]], fields: tuple[str, ...]) -> Record:
    return {field: _figures([value for value in columns[field] if _is_number(value)]) for field in fields}


def _summary(items: list[Any], options: Aggregation, total: int) -> Record:
    asked = options.summary_fields
    counts = _counts(_columns(items, asked) if asked else _columns(items), asked)
    rates = {field: _shares(counted) for field, counted in counts.items()}
    return _totals(items, total) | {"counts": counts, "rates": rates}


def _shares(counted: dict[str, int]) -> dict[str, float]:
    """Which part each value is of all that the field has."""
    total = sum(counted.values())
    return {value: number / total for value, number in counted.items()}


_STRATEGIES: dict[str, Callable[[list[Any], Aggregation, int], Any]] = {
    "concat": _concat,
    "stats": _stats,
    "filter": _filter,
    "group": _group,
    "summary": _summary,
}


def _totals(items: list[Any], total: int) -> Record:
    failed = total - len(items)
    return {"total_items": total, "failed_items": failed} if failed else {"total_items": total}


# -- values -------------------------------------------------------------------------------------------


def _record(item: Any) -> Record:
    """An item as an object; a bare number or text is the field `value` of one."""
    if isinstance(item, dict):
        return item
    return {} if isinstance(item, list | tuple) else {"value": item}


def _reader(path: str) -> Callable[[Any], Any]:
    """What reads a field, or a dotted path, of an item; MISSING where it has none."""
    steps = path.split(".")

    def read(item: Any) -> Any:
        value = record = _record(item)
        if path in record:
            return record[path]
        for step in steps:
            if not isinstance(value, dict) or step not in value:
                return _reached(record, steps)
            value = value[step]
        return value

    return read if len(steps) > 1 else lambda item: _record(item).get(path, MISSING)


def _reached(value: Any, steps: list[str]) -> Any:
    """What stands at the end of a path, or MISSING; a key may itself have dots in it."""
    if not steps:
        return value
    if isinstance(value, list | tuple):
        at = int(steps[0]) if steps[0].isdecimal() and len(steps[0]) < 10 else len(value)
        return _reached(value[at], steps[1:]) if at < len(value) else MISSING
    if not isinstance(value, dict):
        return MISSING
    for size in range(len(steps), 0, -1):
        key = ".".join(steps[:size])
        if key in value and (found := _reached(value[key], steps[size:])) is not MISSING:
            return found
    return MISSING


def _columns(items: list[Any], fields: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """The values of each field: of those that are named, or else of all that stand at the top of the items."""
    if fields is not None:
        return {field: [value for value in map(_reader(field), items) if value is not MISSING] for field in fields}
    columns: dict[str, list[Any]] = {}
    for item in items:
        for name, value in _record(item).items():
            columns.setdefault(str(name), []).append(value)
    return columns


def _counts(columns: dict[str, list[Any]], asked: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """How often each plain value stands in each column, the most frequent first."""
    counts: dict[str, dict[str, int]] = {}
    for field, values in columns.items():
        counted = Counter([_word(value) for value in values if not isinstance(value, dict | list | tuple)])
        if field in asked or 0 < len(counted) <= MOST_VALUES:
            counts[field] = dict(counted.most_common())
    return counts


def _is_number(value: Any) -> bool:
    """Whether a value is a number that JSON can hold; a boolean is none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _word(value: Any) -> str:
    """A value as the key of an object; 1 and 1.0 are one."""
    return _text(int(value) if isinstance(value, float) and value.is_integer() else value)


def _text(value: Any) -> str:
    """A text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        # What a function of the user returned may be no JSON, and integers may be longer than orjson takes.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError) as fault:
        raise _bad("items", f"expected JSON, got {type_name(value)} that is none: {fault}") from None


@lru_cache(maxsize=256)
def _compiled(condition: str) -> Expression:
    try:
        return expressions.compile(condition)
    except ExpressionError as fault:
        raise _bad("condition", f"{quote(condition)}: {fault}") from None


# -- figures ------------------------------------------------------------------------------------------


def _figures(values: list[Any]) -> Record:
    """The figures of some numbers; null where there is none, or where no number can hold it."""
    if not values:
        return {"count": 0, **dict.fromkeys(_FIGURES)}
    try:
        found = _quick_figures(values)
    except OverflowError:
        found = ()
    if not all(map(_is_number, found)) or not found:
        found = _exact_figures(values)
    return {"count": len(values), **dict(zip(_FIGURES, found, strict=True))}


def _quick_figures(values: list[Any]) -> tuple[Any, ...]:
    count, ordered = len(values), sorted(values)
    least, most = ordered[0], ordered[-1]
    total = math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)
    # Rounding must not carry the mean of equal numbers beyond them.
    mean = min(max(total / count, least), most)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if count % 2 == 0 else ordered[count // 2]
    squares = math.fsum((value - mean) * (value - mean) for value in values)
    stdev = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return total, mean, least, most, median, stdev


def _exact_figures(values: list[Any]) -> tuple[Any, ...]:
    """The same for numbers so large that sums of floats would overflow."""
    import statistics
    from fractions import Fraction

    exact = [Fraction(value) for value in values]
    stdev = _held(statistics.stdev, exact) if len(exact) > 1 else 0.0
    total = sum(values) if all(isinstance(value, int) for value in values) else _held(float, sum(exact))
    mean, median = _held(float, sum(exact) / len(exact)), _held(float, statistics.median(exact))
    return total, mean, min(values), max(values), median, stdev


def _held(function: Callable[[Any], float], value: Any) -> float | None:
    try:
        return float(function(value))
    except OverflowError:
        return None


# -- renaming -----------------------------------------------------------------------------------------


def renamed(result: Any, output: Mapping[str, str]) -> Any:
    """The parts of a result that `output` names, under its names. Raises CallError where a path leads nowhere."""
    return {name: _part(result, name, path) for name, path in output.items()} if output else result


def _part(result: Any, name: str, path: str) -> Any:
    steps = path.replace("[", ".").replace("]", "").removeprefix(".").split(".")
    found = _reached(result, steps)
    if found is MISSING and _has_no_items(result, steps[0]):
        return 0 if steps[0] in _COUNTED else None
    if found is MISSING and steps[0] in _COUNTED and _is_counted(result, steps):
        return 0
    if found is MISSING:
        raise _bad(f"output.{name}", f"{quote(path)} leads nowhere: {_told(result, steps)}")
    return found


def _has_no_items(result: Any, part: str) -> bool:
    """Whether a path leads nowhere because there was nothing to aggregate."""
    if not isinstance(result, dict) or "total_items" not in result:
        return not result
    return part in result and result["total_items"] == result.get("failed_items", 0)


def _is_counted(result: Any, steps: list[str]) -> bool:
    """Whether a path leads to a value that no item has, in a field whose values were counted."""
    if not isinstance(result, dict) or "total_items" not in result:
        return False
    return any(isinstance(_reached(result, steps[:size]), dict) for size in range(2, len(steps)))


def _told(result: Any, steps: list[str]) -> str:
    """What there is at the last place of a path that exists."""
    size = max(size for size in range(len(steps)) if _reached(result, steps[:size]) is not MISSING)
    value, place = _reached(result, steps[:size]), ".".join(steps[:size]) or "the result"
    if isinstance(value, dict):
        return f"{place} has {listed(value)}{did_you_mean(steps[size], map(str, value))}"
    return f"{place} is {type_name(value)}"
