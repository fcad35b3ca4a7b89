"""Resolves the `where` of a check: `output`, `output.<field>`, `steps.<id>`, `aggregation`, `sources` or `outcome`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import ABSENT, Output
from evalloom.core.text import type_name
from evalloom.matchers.base import show

_STEP = lazy_pattern(r"([^.\[\]]+)|\[(-?\d{1,18})\]|\[(['\"])(.*?)\3\]")
_ROOTS = ("output", "steps", "aggregation", "sources", "outcome")
_MAX_FIELDS = 12


class Missing(Struct, frozen=True):
    """No value at a place; the reason says what is there instead. `is_misplaced` if the place cannot exist."""

    reason: str
    is_misplaced: bool = False


def find(where: str, output: Output) -> Any:
    """Return the value at a place of the output, or `Missing`."""
    if where == "output":
        value = output.value
        # Plain text has the one field `output`; an object may have a field of that name.
        if type(value) is dict and "output" in value:
            return value["output"]
        return find(output.plain, output) if output.plain and output.plain != "output" else value
    for root in _ROOTS:
        if where.startswith(root):
            rest = where[len(root) :]
            if not rest or rest[0] in ".[":
                return _walk(_root(root, output), rest.removeprefix("."), root)
    places = "output, output.<field>, steps.<id>, aggregation, sources or outcome"
    return Missing(f"where: expected {places}, got {where!r}. Did you mean 'output.{where}'?", is_misplaced=True)


def _root(root: str, output: Output) -> Any:
    value = output.value
    if root == "output":
        return value
    if root == "sources" and not output.sources and isinstance(value, dict):
        # A target that returns only one value may have its sources inside it.
        return value.get("sources", [])
    return getattr(output, root)


def _walk(value: Any, rest: str, at: str) -> Any:
    """Follow the names and numbers of a path, one after another."""
    if at == "aggregation" and value is None:
        return Missing("aggregation: the run gave none")
    if at == "output" and rest == "output" and not isinstance(value, dict):
        return value
    while rest:
        value = parsed_object(value)
        # A name may hold dots of its own.
        if type(value) is dict and rest in value:
            return value[rest]
        step = _STEP.match(rest)
        if step is None:
            return Missing(f"where: expected a path like output.a[0].b, got {rest!r} after {at!r}", is_misplaced=True)
        name: str | int = int(step[2]) if step[2] else step[1] or step[4] or ""
        place = f"{at}[{name}]" if step[2] else f"{at}.{name}"
        inner = _step(value, name)
        if inner is ABSENT:
            return Missing(_absence(value, place, at))
        value, rest, at = inner, rest[step.end() :].removeprefix("."), place
    return value


def parsed_object(value: Any) -> Any:
    """Return the JSON object that a text is or holds, or the list that it is; else the value."""
    if type(value) is not str:
        return value
    # Deferred: most checks look at a text as it is.
    from evalloom.llms.answer_json import NO_JSON, loads, object_in, strip_reasoning

    parsed = object_in(value)
    if parsed is NO_JSON and (answer := strip_reasoning(value)).lstrip().startswith("["):
        parsed = loads(answer)
    return value if parsed is NO_JSON else parsed


def _step(value: Any, name: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(name, value.get(str(name), ABSENT))
    if isinstance(value, list | tuple) and isinstance(name, int) and -len(value) <= name < len(value):
        return value[name]
    return ABSENT


def _absence(value: Any, place: str, at: str) -> str:
    if isinstance(value, dict):
        names = [str(name) for name in list(value)[:_MAX_FIELDS]]
        more = ", …" if len(value) > _MAX_FIELDS else ""
        there = f"has the fields {', '.join(names)}{more}" if names else "has no fields"
        return f"{place}: is not there; {at} {there}"
    if isinstance(value, list | tuple):
        return f"{place}: is not there; {at} is a list of {len(value)}"
    if isinstance(value, str):
        return f"{place}: is not there; {at} is a text without a JSON object in it: {show(value)}"
    return f"{place}: is not there; {at} is {type_name(value)}"
