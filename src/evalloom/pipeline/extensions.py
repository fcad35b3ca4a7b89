"""Extensions to v2.0 records: conditions, dependencies and performance limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from evalloom.core.model import Check, Record, Remark, error, warning
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.data.cells import texts_of

FIELDS = ("performance_baseline", "depends_on", "conditions", "parameters")
CONDITION_NAMES = ("profile", "variant", "tags", "id", "env", "inputs")
"""The names available in the conditions of a case (PIPE-15)."""
LIMITS = {"max_latency_ms": "latency", "max_tokens": "tokens", "max_cost": "cost"}
"""The kind of check for each limit of a performance_baseline (PIPE-13)."""


def findings(case: Record) -> Iterator[Remark]:
    """Check the extension fields of one record."""
    yield from _baseline_findings(case.get("performance_baseline"))
    for path, value in _non_texts("depends_on", case.get("depends_on")):
        yield error("bad_depends_on", path, f"depends_on: expected the id of a case or a list of ids, got {value}")
    yield from _conditions_findings(case.get("conditions"))


# -- performance_baseline -------------------------------------------------------------------------


def baseline_checks(case: Record) -> Iterator[Check]:
    """Yield one check per limit."""
    baseline = case.get("performance_baseline")
    for name, limit in baseline.items() if isinstance(baseline, dict) else ():
        if name in LIMITS and _is_limit(limit):
            yield Check(LIMITS[name], limit, name=f"performance_baseline.{name}")


def limit_of(check: Check) -> str:
    """Return the performance_baseline limit that is equivalent to a check, or an empty string."""
    if check.where != "output" or check.options or not _is_limit(check.expected):
        return ""
    return next((name for name, kind in LIMITS.items() if kind == check.kind), "")


def _is_limit(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _baseline_findings(baseline: Any) -> Iterator[Remark]:
    if baseline is not None and not isinstance(baseline, dict):
        message = f"performance_baseline: expected an object of limits, got {type_name(baseline)}"
        yield error("bad_performance_baseline", ("performance_baseline",), message)
        return
    for name, limit in (baseline or {}).items():
        path = ("performance_baseline", name)
        if name not in LIMITS:
            hint = did_you_mean(name, LIMITS) or f". There are {', '.join(LIMITS)}"
            message = f"performance_baseline.{name}: is not known and has no effect{hint}"
            yield warning("unknown_baseline_key", path, message)
        elif not _is_limit(limit):
            message = f"performance_baseline.{name}: expected a number of 0 or more, got {quote(limit)}"
            yield error("bad_performance_baseline", path, message)


# -- depends_on -----------------------------------------------------------------------------------


def needs_of(record: Record) -> tuple[str, ...]:
    """Return the unique ids of the cases that a record depends on."""
    return texts_of(record.get("depends_on"))


def _non_texts(field: str, value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and description of each value that is not a text."""
    if value is None:
        return
    for number, text in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(text, str) or not text:
            path = (field, number) if isinstance(value, list) else (field,)
            yield path, "an empty text" if text == "" else type_name(text)


# -- conditions -----------------------------------------------------------------------------------


def _conditions_findings(conditions: Any) -> Iterator[Remark]:
    for path, value in _non_texts("conditions", conditions):
        message = f"conditions: expected an expression or a list of them, got {value}"
        yield error("bad_conditions", path, message)
    for number, text in enumerate(conditions if isinstance(conditions, list) else [conditions]):
        if isinstance(text, str) and text:
            path = ("conditions", number) if isinstance(conditions, list) else ("conditions",)
            yield from _condition_findings(text, path)


def _condition_findings(text: str, path: tuple[str | int, ...]) -> Iterator[Remark]:
    from evalloom.core.expressions import ExpressionError, compiled  # deferred: few cases have conditions

    try:
        names = compiled(text).names
    except ExpressionError as exc:
        yield error("bad_conditions", path, f"conditions: {quote(text)}: {exc}")
        return
    for name in sorted(names.difference(CONDITION_NAMES)):
        hint = did_you_mean(name, CONDITION_NAMES) or f". There are {', '.join(CONDITION_NAMES)}"
        message = f"conditions: {quote(text)} uses {name!r}, which is always null{hint}"
        yield warning("unknown_condition_name", path, message)
