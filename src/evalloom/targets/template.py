"""Templates: `{{name}}`, `{{ a.b[0] }}` and `{name}` become the inputs of a case. One pass, and no code ever runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from evalloom.errors import CallError, did_you_mean
from evalloom.model import Record, quote
from evalloom.targets.target import listed

# `{{"a": 1}}` begins with no letter: that is JSON, or a brace doubled for another template language.
_HOLE = re.compile(r"\{\{[ \t]*(\w[^{}\n]*)\}\}|\{([^\W\d]\w*)\}")
_ROOT = re.compile(r"[^.\[\]]+")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\"([^\"]*)\"\]|\['([^']*)'\]")
MISSING: Any = object()
"""What is not there, where None would be a value."""

Filled = Callable[[Record], Any]
"""A JSON value with holes, waiting for inputs."""


class _Hole(NamedTuple):
    """A place to fill: the text as written, the name in it, and whether it must be filled."""

    at: int
    written: str
    name: str
    is_needed: bool


class Template:
    """A text with holes, cut once so that filling it takes about a microsecond."""

    def __init__(self, text: str, name: str = "template", show: Callable[[Any], str] | None = None) -> None:
        """`name` is what messages call it; `show` writes each value, for places such as a URL that have rules."""
        self.text = text
        self._name = name
        self._show = show or as_text
        self._is_plain = show is None
        self._parts, self._holes = _cut(text)
        self.variables = frozenset(_root(hole.name) for hole in self._holes if hole.is_needed)
        self.optional = frozenset(hole.name for hole in self._holes if not hole.is_needed) - self.variables

    def render(self, inputs: Record) -> str:
        """The text with the inputs in it; a value is never looked into again."""
        parts = self._parts.copy()
        for hole in self._holes:
            value = inputs.get(hole.name, MISSING)
            parts[hole.at] = value if type(value) is str and self._is_plain else self._fill(hole, value, inputs)
        return "".join(parts)

    @property
    def only_name(self) -> str:
        """The name where the template is nothing but one `{{name}}`, else empty."""
        is_only = len(self._holes) == 1 and self._holes[0].is_needed and self._holes[0].written == self.text.strip()
        return self._holes[0].name if is_only else ""

    def _fill(self, hole: _Hole, value: Any, inputs: Record) -> str:
        if value is MISSING and not hole.is_needed:
            return hole.written
        return self._show(find(hole.name, inputs, self._name) if value is MISSING else value)


def _cut(text: str) -> tuple[list[str], list[_Hole]]:
    """The pieces of a text, and which of them are holes."""
    parts: list[str] = []
    holes: list[_Hole] = []
    end = 0
    for match in _HOLE.finditer(text):
        parts += (text[end : match.start()], "")
        name, is_needed = match[1] or match[2], match[1] is not None
        holes.append(_Hole(len(parts) - 1, match[0], name.rstrip(), is_needed))
        end = match.end()
    return [*parts, text[end:]], holes


def find(name: str, inputs: Record, where: str) -> Any:
    """The input that a name or a path like `order.lines[0].sku` leads to. Raises CallError where there is none."""
    if name in inputs:
        return inputs[name]
    root = _root(name)
    if root not in inputs:
        lacks = f"the case has no input {quote(root)}; it has {listed(inputs)}{did_you_mean(root, inputs)}"
        raise CallError("missing_variable", f"{where}: {{{{{name}}}}}: {lacks}")
    found = follow(inputs[root], name[len(root) :])
    if found is MISSING:
        message = f"{where}: {{{{{name}}}}}: the input {quote(root)} has nothing at {quote(name[len(root) :])}"
        raise CallError("missing_variable", message)
    return found


def follow(value: Any, path: str) -> Any:
    """What stands in a JSON value at a path such as `.lines[0].sku`, or MISSING."""
    end = 0
    while end < len(path) and value is not MISSING:
        step = _STEP.match(path, end)
        if step is None:
            return MISSING
        value, end = _inside(value, step), step.end()
    return value


def _root(name: str) -> str:
    match = _ROOT.match(name)
    return match[0] if match else name


def _inside(value: Any, step: re.Match[str]) -> Any:
    if step[2] is not None:
        at = int(step[2][:9])
        return value[at] if isinstance(value, list) and at < len(value) else MISSING
    key = next(part for part in (step[1], step[3], step[4]) if part is not None)
    return value.get(key, MISSING) if isinstance(value, dict) else MISSING


def as_text(value: Any) -> str:
    """A value as a template writes it: a text as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Inputs as compact JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as fault:
        raise CallError("unusable_input", f"expected inputs that are JSON, got one that is not: {fault}") from None


def compile_json(value: Any, name: str) -> tuple[Filled, frozenset[str]]:
    """A JSON value whose strings are templates, and the inputs it needs; `"{{name}}"` alone keeps the value's type."""
    if isinstance(value, str):
        return _compile_text(value, name)
    if isinstance(value, list):
        return _compile_list(value, name)
    if isinstance(value, dict):
        keys = list(value)
        items, variables = _compile_list(list(value.values()), name)
        return lambda inputs: dict(zip(keys, items(inputs), strict=True)), variables
    return lambda inputs: value, frozenset()


def _compile_text(text: str, name: str) -> tuple[Filled, frozenset[str]]:
    template = Template(text, name)
    only = template.only_name
    return (lambda inputs: find(only, inputs, name)) if only else template.render, template.variables


def _compile_list(values: list[Any], name: str) -> tuple[Filled, frozenset[str]]:
    compiled = [compile_json(item, name) for item in values]
    fillers = [filler for filler, _ in compiled]
    variables = frozenset[str]().union(*(needed for _, needed in compiled))
    return lambda inputs: [filler(inputs) for filler in fillers], variables
