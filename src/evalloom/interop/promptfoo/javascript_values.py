"""How JavaScript treats the values of templates: as text, as truth, in comparisons, with operators and members."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Undefined
from msgspec import Struct

UNDEFINED = object()
"""A member that is not there."""
_LARGEST = 2.0**1000
_LONGEST = 4_000_000


class Method(Struct, frozen=True):
    """A method of a text or a list, bound to its value."""

    call: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def text_of(value: Any) -> str:
    """Return a value as a template prints it. Objects are JSON, where JavaScript prints `[object Object]`."""
    if type(value) is str:
        return value
    if value is None or isinstance(value, Undefined):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list | tuple):
        # As JavaScript joins a list; a list of objects would read `[object Object]`.
        is_flat = not any(isinstance(item, dict | list) for item in value)
        return join(",", value) if is_flat else json_text(value)
    if isinstance(value, dict):
        return json_text(value)
    return str(value)


def json_text(value: Any, indent: int | str | None = None) -> str:
    """Return a value as `JSON.stringify` writes it."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=_plain)


def _plain(value: Any) -> Any:
    return None if isinstance(value, Undefined) else text_of(value)


def number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)


def is_undefined(value: Any) -> bool:
    return isinstance(value, Undefined)


def truth(value: Any) -> bool:
    """Return whether a value counts as true: empty lists and objects do."""
    if isinstance(value, Undefined):
        return False
    if isinstance(value, float) and math.isnan(value):
        return False
    return True if isinstance(value, list | tuple | dict) else bool(value)


def number_of(value: Any) -> float | int:
    """Return a value as a number; NaN where it is none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**53 else float(min(max(value, -(2**1000)), 2**1000))
    if isinstance(value, float):
        return value
    if value is None or value == "":
        return 0
    if isinstance(value, str):
        try:
            number = float(value.strip() or 0)
        except ValueError:
            return math.nan
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return math.nan


def compared(left: Any, operator: str, right: Any) -> bool:
    """Compare as `==`, `<` and `in` do in a template."""
    if operator in ("in", "notin"):
        is_in = _contains(right, left)
        return is_in if operator == "in" else not is_in
    if operator in ("eq", "ne"):
        return _equal(left, right) is (operator == "eq")
    if not (isinstance(left, str) and isinstance(right, str)):
        left, right = number_of(left), number_of(right)
    return bool({"lt": left < right, "lteq": left <= right, "gt": left > right, "gteq": left >= right}[operator])


def _equal(left: Any, right: Any) -> bool:
    left, right = (None if isinstance(value, Undefined) else value for value in (left, right))
    if left is None or right is None:
        return left is right
    scalars = (str, int, float)
    if isinstance(left, scalars) and isinstance(right, scalars) and isinstance(left, str) is not isinstance(right, str):
        return bool(number_of(left) == number_of(right))
    return bool(left == right)


def _contains(container: Any, item: Any) -> bool:
    if isinstance(container, str):
        return text_of(item) in container
    if isinstance(container, dict):
        return text_of(item) in container
    return isinstance(container, list | tuple) and any(_equal(item, inner) for inner in container)


def binary(operator: str, left: Any, right: Any) -> Any:
    """Apply an arithmetic operator; `+` joins texts."""
    if operator == "+" and (isinstance(left, str | list | dict) or isinstance(right, str | list | dict)):
        return text_of(left) + text_of(right)
    first, second = number_of(left), number_of(right)
    try:
        result = _ARITHMETIC[operator](first, second)
    except ZeroDivisionError:
        result = math.nan if operator in ("%",) or not first else math.copysign(math.inf, first)
    except (OverflowError, ValueError):
        result = math.inf
    if isinstance(result, complex):
        return math.nan
    if isinstance(result, float) and result.is_integer() and abs(result) < 2**53:
        return int(result)
    return result if isinstance(result, int) and abs(result) < 2**53 else float(result)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "//": lambda left, right: math.floor(left / right),
    "%": lambda left, right: math.fmod(left, right),
    "**": lambda left, right: float(left) ** float(right),
}


def member(value: Any, name: Any) -> Any:
    """Return a member: a field of an object, an item of a list, or a known property or method of a text or a list."""
    if isinstance(value, dict):
        return value.get(name if isinstance(name, str) else text_of(name), UNDEFINED)
    if isinstance(value, str | list | tuple):
        position = number_of(name)
        if not isinstance(name, str) or (name.isdecimal() and isinstance(position, int)):
            is_there = isinstance(position, int) and 0 <= position < len(value)
            return value[int(position)] if is_there else UNDEFINED
        if name == "length":
            return len(value)
        methods = _TEXT_METHODS if isinstance(value, str) else _LIST_METHODS
        if name in methods:
            method = methods[name]
            return Method(lambda *arguments: method(value, *arguments))
        return UNDEFINED
    # Members of a loop and of macros are jinja's own objects, with plain values.
    if type(value).__module__ == "jinja2.runtime" and isinstance(name, str) and name in _LOOP:
        return getattr(value, name)
    return UNDEFINED


_LOOP = ("index", "index0", "revindex", "revindex0", "first", "last", "length")


def _slice(value: Any, start: Any = 0, end: Any = None) -> Any:
    return value[int(number_of(start)) : len(value) if end is None else int(number_of(end))]


def _repeat(text: str, times: Any) -> str:
    count = int(number_of(times))
    if count < 0 or len(text) * count > _LONGEST:
        raise ValueError(f"repeat: expected at most {_LONGEST:,} characters")
    return text * count


def _pad(text: str, width: Any, fill: Any = " ") -> str:
    missing = min(int(number_of(width)), _LONGEST) - len(text)
    fill = text_of(fill)
    return (fill * (missing // len(fill) + 1))[:missing] if missing > 0 and fill else ""


def replace(text: str, old: Any, new: Any, most: int = -1) -> str:
    """Replace in a text, whose size stays within the limit of templates."""
    old, new = text_of(old), text_of(new)
    count = text.count(old) if most < 0 else min(most, text.count(old))
    if len(text) + count * (len(new) - len(old)) > _LONGEST:
        raise ValueError(f"replace: expected at most {_LONGEST:,} characters")
    return text.replace(old, new, most)


def join(separator: str, items: Iterable[Any]) -> str:
    """Join texts, whose size stays within the limit of templates. Raises ValueError."""
    parts: list[str] = []
    size = 0
    for item in items:
        text = text_of(item)
        parts.append(text)
        size += len(text) + len(separator)
        # One text may stand in a list a million times.
        if size > 2 * _LONGEST and len(parts) > 1:
            raise ValueError(f"join: expected at most {2 * _LONGEST:,} characters")
    return separator.join(parts)


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _split(text: str, separator: Any = None) -> list[str]:
    if separator is None:
        return [text]
    return list(text) if separator == "" else text.split(text_of(separator))


def _index(value: Any, item: Any) -> int:
    if isinstance(value, str):
        return value.find(text_of(item))
    return next((at for at, inner in enumerate(value) if _equal(inner, item)), -1)


_TEXT_METHODS: dict[str, Callable[..., Any]] = {
    "charAt": lambda text, at=0: text[int(number_of(at)) :][:1] if number_of(at) >= 0 else "",
    "concat": lambda text, *others: join("", [text, *others]),
    "endsWith": lambda text, end: text.endswith(text_of(end)),
    "includes": lambda text, part: text_of(part) in text,
    "indexOf": _index,
    "padEnd": lambda text, width, fill=" ": text + _pad(text, width, fill),
    "padStart": lambda text, width, fill=" ": _pad(text, width, fill) + text,
    "repeat": _repeat,
    "replace": lambda text, old, new: replace(text, old, new, 1),
    "replaceAll": replace,
    "slice": _slice,
    "split": _split,
    "startsWith": lambda text, start: text.startswith(text_of(start)),
    "substring": lambda text, start=0, end=None: _slice(text, max(0, number_of(start)), end),
    "toLowerCase": lambda text: text.lower(),
    "toString": lambda text: text,
    "toUpperCase": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
}
_LIST_METHODS: dict[str, Callable[..., Any]] = {
    "concat": lambda items, *others: [*items, *(item for other in others for item in as_list(other))],
    "includes": _contains,
    "indexOf": _index,
    "join": lambda items, separator=",": join(text_of(separator), items),
    "slice": _slice,
    "toString": text_of,
}
