"""Aggregation of lists (PIPE-9): five strategies and the renaming of their results, without I/O.

The sixth strategy, custom, runs the user's code: its options are parsed here, and it runs in `steps.py`.
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
from evalloom.core.errors import CallError
from evalloom.core.expressions import Expression, ExpressionError
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, list_names, quote, type_name
from evalloom.targets.template import MISSING

STRATEGIES = ("concat", "stats", "filter", "group", "summary", "custom")
MOST_VALUES = 50
"""The maximum number of distinct values of a field that is counted without being named."""
_FIGURES = ("sum", "mean", "min", "max", "median", "stdev")
_COUNTED = ("distribution", "counts", "rates")

OptionError = tuple[str, str]
"""A key of a step, and the error message."""


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
    "strategy": ("a string", lambda value: isinstance(value, str)),
    "separator": ("a string", lambda value: isinstance(value, str)),
    "fields": ("a list of names", lambda value: _are_texts(value)),
    "condition": ("a string", lambda value: isinstance(value, str)),
    "group_by": ("a string", lambda value: isinstance(value, str)),
    "summary_fields": ("a list of names", lambda value: _are_texts(value)),
    "include_distribution": ("true or false", lambda value: isinstance(value, bool)),
    "output": (
        "an object such as {average: fields.rating.mean}",
        lambda value: isinstance(value, dict) and _are_texts(list(value.values())),
    ),
    "code": ("a string", lambda value: isinstance(value, str)),
    "language": ("a string", lambda value: isinstance(value, str)),
}


def read_options(step: Record) -> tuple[Aggregation, list[OptionError]]:
    """Parse the options of a step; return them with their errors. Invalid options keep their defaults."""
    errors: list[OptionError] = []
    values: Record = {}
    for name, (expected, fits) in _KINDS.items():
        key = _key(step, name)
        if key != name and step.get(name) not in (None, step.get(key)):
            both = f"{quote(step[name])} and {quote(step[key])}"
            errors.append((name, f"{name} and {key} differ: {both}. Keep one of them"))
        value = step.get(key)
        if value is None:
            continue
        if fits(value):
            values[name] = tuple(value) if isinstance(value, list) else value
        else:
            shown = quote(value) if isinstance(value, str | int | float) else type_name(value)
            errors.append((key, f"expected {expected}, got {shown}"))
    options = Aggregation(**values)
    reported = {key for key, _ in errors}
    errors += (error for error in _option_errors(options, step) if error[0] not in reported)
    return options, errors


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _key(step: Record, name: str) -> str:
    """Return the name of an option that a step uses; the long one by default."""
    long = _ALIASES.get(name, name)
    return name if step.get(long) is None and step.get(name) is not None else long


def _option_errors(options: Aggregation, step: Record) -> Iterable[OptionError]:
    """Yield the errors in options of the right types."""
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
        except ExpressionError as error:
            yield "condition", f"{quote(options.condition)}: {error}"
    if options.language.lower() != "python":
        yield "language", f"only Python code is run, got {quote(options.language)}"


# -- strategies ---------------------------------------------------------------------------------------


def aggregate(items: list[Any], options: Aggregation) -> Any:
    """Aggregate items with any strategy except custom. Raises CallError, which names the key.

    Failed items count in the total and are otherwise ignored.
    """
    if not isinstance(items, list | tuple):
        raise _bad("items", f"expected a list, got {type_name(items)}")
    strategy = _STRATEGIES.get(options.strategy)
    if strategy is None:
        expected = ", ".join(_STRATEGIES)
        raise _bad("strategy", f"expected one of {expected}, got {quote(options.strategy)}")
    return strategy([item for item in items if not isinstance(item, FailedItem)], options, len(items))


class FailedItem(dict[str, Any]):
    """The result of a failed batch item, `{"error": …}`; a type, because a valid item may look the same."""

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
    holds = _compile_condition(options.condition).holds
    return [item for item in items if holds({**item, "item": item} if isinstance(item, dict) else {"item": item})]


def _group(items: list[Any], options: Aggregation, total: int) -> dict[str, list[Any]]:
    if not options.group_by:
        raise _bad("group_by", "the strategy group needs group_by")
    read = _reader(options.group_by)
    groups: dict[str, list[Any]] = {}
    for item in items:
        value = read(item)
        groups.setdefault("null" if value is MISSING else _as_key(value), []).append(item)
    return groups


def _stats(items: list[Any], options: Aggregation, total: int) -> Record:
    columns = {**_columns(items), **_columns(items, options.fields)}
    numeric = [field for field, values in columns.items() if any(map(_is_number, values))]
    fields = options.fields or tuple(numeric)
    categorical = {field: values for field, values in columns.items() if field not in numeric}
    counts = _counts(categorical, options.fields) if options.include_distribution else {}
    result = _totals(items, total) | {"fields": _figures_of(columns, fields)}
    if options.include_distribution:
        result["distribution"] = counts
    if options.group_by:
        groups = _group(items, options, total)
        result["groups"] = {key: _group_stats(group, fields, tuple(counts)) for key, group in groups.items()}
    return result


def _group_stats(items: list[Any], fields: tuple[str, ...], categorical: tuple[str, ...]) -> Record:
    """Return the statistics of one group, over the same fields."""
    result = _totals(items, len(items)) | {"fields": _figures_of(_columns(items, fields), fields)}
    if not categorical:
        return result
    return result | {"distribution": _counts(_columns(items, categorical), categorical)}


def _figures_of(columns: dict[str, list[Any]], fields: tuple[str, ...]) -> Record:
    return {field: _figures([value for value in columns[field] if _is_number(value)]) for field in fields}


def _summary(items: list[Any], options: Aggregation, total: int) -> Record:
    named = options.summary_fields
    counts = _counts(_columns(items, named) if named else _columns(items), named)
    totals = {field: sum(values.values()) for field, values in counts.items()}
    rates = {field: {value: n / totals[field] for value, n in values.items()} for field, values in counts.items()}
    return _totals(items, total) | {"counts": counts, "rates": rates}


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
    """Return an item as an object; a bare number or text becomes the field `value`."""
    if isinstance(item, dict):
        return item
    return {} if isinstance(item, list | tuple) else {"value": item}


def _reader(path: str) -> Callable[[Any], Any]:
    """Return a function that reads a field or dotted path of an item, or MISSING."""
    steps = path.split(".")

    def read(item: Any) -> Any:
        value = record = _record(item)
        if path in record:
            return record[path]
        for step in steps:
            if not isinstance(value, dict) or step not in value:
                return _follow(record, steps)
            value = value[step]
        return value

    return read if len(steps) > 1 else lambda item: _record(item).get(path, MISSING)


def _follow(value: Any, steps: list[str]) -> Any:
    """Follow a path, or return MISSING; keys may contain dots."""
    if not steps:
        return value
    if isinstance(value, list | tuple):
        at = int(steps[0]) if steps[0].isdecimal() and len(steps[0]) < 10 else len(value)
        return _follow(value[at], steps[1:]) if at < len(value) else MISSING
    if not isinstance(value, dict):
        return MISSING
    for size in range(len(steps), 0, -1):
        key = ".".join(steps[:size])
        if key in value and (inner := _follow(value[key], steps[size:])) is not MISSING:
            return inner
    return MISSING


def _columns(items: list[Any], fields: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """Return the values of the named fields, or of all top-level fields."""
    if fields is not None:
        return {field: [value for value in map(_reader(field), items) if value is not MISSING] for field in fields}
    columns: dict[str, list[Any]] = {}
    for item in items:
        for name, value in _record(item).items():
            columns.setdefault(str(name), []).append(value)
    return columns


def _counts(columns: dict[str, list[Any]], named: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Count the scalar values of each column, most frequent first."""
    counts: dict[str, dict[str, int]] = {}
    for field, values in columns.items():
        counted = Counter([_as_key(value) for value in values if not isinstance(value, dict | list | tuple)])
        if field in named or 0 < len(counted) <= MOST_VALUES:
            counts[field] = dict(counted.most_common())
    return counts


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a boolean."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _as_key(value: Any) -> str:
    """Format a value as an object key; 1 and 1.0 are the same key."""
    return _text(int(value) if isinstance(value, float) and value.is_integer() else value)


def _text(value: Any) -> str:
    """Return a text unchanged and anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        # User functions may return values that are not JSON, or integers too large for orjson.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad("items", f"expected JSON, got {type_name(value)} that cannot be encoded: {error}") from None


@lru_cache(maxsize=256)
def _compile_condition(condition: str) -> Expression:
    try:
        return expressions.compile(condition)
    except ExpressionError as error:
        raise _bad("condition", f"{quote(condition)}: {error}") from None


# -- figures ------------------------------------------------------------------------------------------


def _figures(values: list[Any]) -> Record:
    """Return the statistics of numbers; null if there are none or the result overflows."""
    if not values:
        return {"count": 0, **dict.fromkeys(_FIGURES)}
    try:
        figures = _quick_figures(values)
    except OverflowError:
        figures = ()
    if not all(map(_is_number, figures)) or not figures:
        figures = _exact_figures(values)
    return {"count": len(values), **dict(zip(_FIGURES, figures, strict=True))}


def _quick_figures(values: list[Any]) -> tuple[Any, ...]:
    count, ordered = len(values), sorted(values)
    least, most = ordered[0], ordered[-1]
    total = math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)
    # Rounding must not move the mean outside the range of the values.
    mean = min(max(total / count, least), most)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if count % 2 == 0 else ordered[count // 2]
    squares = math.fsum((value - mean) * (value - mean) for value in values)
    stdev = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return total, mean, least, most, median, stdev


def _exact_figures(values: list[Any]) -> tuple[Any, ...]:
    """Return the same statistics with exact arithmetic, for numbers whose float sums overflow."""
    import statistics
    from fractions import Fraction

    exact = [Fraction(value) for value in values]
    stdev = _within_float_range(statistics.stdev, exact) if len(exact) > 1 else 0.0
    total = sum(values) if all(isinstance(value, int) for value in values) else _within_float_range(float, sum(exact))
    mean, median = (
        _within_float_range(float, sum(exact) / len(exact)),
        _within_float_range(float, statistics.median(exact)),
    )
    return total, mean, min(values), max(values), median, stdev


def _within_float_range(function: Callable[[Any], float], value: Any) -> float | None:
    try:
        return float(function(value))
    except OverflowError:
        return None


# -- renaming -----------------------------------------------------------------------------------------


def renamed(result: Any, output: Mapping[str, str]) -> Any:
    """Return the parts of a result that `output` selects. Raises CallError if a path does not exist."""
    return {name: _part(result, name, path) for name, path in output.items()} if output else result


def _part(result: Any, name: str, path: str) -> Any:
    steps = path.replace("[", ".").replace("]", "").removeprefix(".").split(".")
    value = _follow(result, steps)
    if value is not MISSING:
        return value
    has_totals = isinstance(result, dict) and "total_items" in result
    if has_totals:
        is_empty = steps[0] in result and result["total_items"] == result.get("failed_items", 0)
    else:
        is_empty = not result
    if is_empty:
        # The path is missing because there was nothing to aggregate.
        return 0 if steps[0] in _COUNTED else None
    # A value that never occurs in a counted field has a count of zero.
    prefixes = (_follow(result, steps[:size]) for size in range(2, len(steps)))
    if has_totals and steps[0] in _COUNTED and any(isinstance(prefix, dict) for prefix in prefixes):
        return 0
    raise _bad(f"output.{name}", f"{quote(path)} does not exist: {_describe_dead_end(result, steps)}")


def _describe_dead_end(result: Any, steps: list[str]) -> str:
    """Describe the deepest existing part of a path."""
    size = max(size for size in range(len(steps)) if _follow(result, steps[:size]) is not MISSING)
    value, place = _follow(result, steps[:size]), ".".join(steps[:size]) or "the result"
    if isinstance(value, dict):
        return f"{place} has {list_names(value)}{did_you_mean(steps[size], map(str, value))}"
    return f"{place} is {type_name(value)}"
