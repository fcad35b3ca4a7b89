"""Differences of two JSON values for pages and reports: each change with its path, whatever the order of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import shorten
from evalloom.ui.diff import TextDiff, changed_blocks, compare_texts

_MOST_VALUES = 500_000
"""Values of both sides together: up to 1.3 s. JSON of 1 MB has fewer, unless it is all numbers; it is text then.
The limit also ends the walk through a value that contains itself."""
_MOST_CHANGES = 200
_LONGEST, _LONGEST_INLINE = 2_000, 60
"""Characters of a value that are shown; texts longer than the second are compared by word."""
_PLAIN_KEY = lazy_pattern(r"[^\W\d][\w-]*")
_ABSENT: Any = object()
_Trail = tuple[Any, ...]
"""A path as links `(trail before, step)`, written out only for changes, so that deep values take linear time."""


class JsonChange(NamedTuple):
    """One change: the values as JSON, the missing side empty. `text` compares two longer texts by word.

    The path is that of the value in `b`, of a removed one in `a`.
    """

    kind: Literal["changed", "added", "removed"]
    path: str
    before: str
    after: str
    text: TextDiff | None = None


class JsonDiff(Struct, frozen=True):
    """The changes of two JSON values in the order of `a`; none if they are equal but for form and order of keys."""

    changes: tuple[JsonChange, ...]
    hidden: int = 0
    """Changes that are too many to show."""

    @property
    def is_equal(self) -> bool:
        return not self.changes


def compare_values(a: Any, b: Any) -> TextDiff | JsonDiff:
    """Compare by key what is JSON on both sides, parsed or as text, and anything else as text."""
    return compare_json(a, b) or compare_texts(_as_text(a), _as_text(b))


def compare_json(a: Any, b: Any) -> JsonDiff | None:
    """Compare two objects or arrays, parsed or as text; None if a side is neither, or if they are too large."""
    a, b = _parsed(a), _parsed(b)
    if a is _ABSENT or b is _ABSENT:
        return None
    numbers = _Numbers()
    if not (numbers.add(a) and numbers.add(b)):
        return None
    changes: list[JsonChange] = []
    hidden = 0
    for trail, before, after in _walk(a, b, numbers):
        if len(changes) < _MOST_CHANGES:
            changes.append(_change(trail, before, after))
        else:
            hidden += 1
    return JsonDiff(tuple(changes), hidden)


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        if value.lstrip()[:1] not in ("{", "["):
            return _ABSENT
        try:
            value = json.loads(value, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            return _ABSENT
    return value if isinstance(value, dict | list | tuple) else _ABSENT


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("two numbers that are too large would be equal")
    return number


class _Numbers:
    """Numbers values so that equal ones have the same number: 1 and 1.0 are equal, 1 and true are not."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._containers: dict[int, int] = {}
        """By the identity of a list or object."""
        self._room = _MOST_VALUES

    def of(self, value: Any) -> int:
        """Return the number of a value that was added."""
        if isinstance(value, dict | list | tuple):
            return self._containers[id(value)]
        key: Any = value
        if isinstance(value, bool):
            key = ("boolean", value)
        elif isinstance(value, float) and value != value:
            key = ("nan",)
        elif value is not None and not isinstance(value, str | int | float):
            key = (type(value), str(value))
        return self._number(key)

    def add(self, value: Any) -> bool:
        """Number a value and all inside it; False if there are too many. Values may be deeper than Python's stack."""
        waiting = [(value, False)]
        while waiting:
            value, is_ready = waiting.pop()
            if not isinstance(value, dict | list | tuple) or id(value) in self._containers:
                continue
            inner = value.values() if isinstance(value, dict) else value
            if is_ready:
                key: Any = ("list", *map(self.of, inner))
                if isinstance(value, dict):
                    key = ("object", frozenset((name, self.of(item)) for name, item in value.items()))
                self._containers[id(value)] = self._number(key)
                continue
            self._room -= 1 + len(value)
            if self._room < 0:
                return False
            waiting.append((value, True))
            waiting += [(item, False) for item in inner]
        return True

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _walk(a: Any, b: Any, numbers: _Numbers) -> Iterator[tuple[_Trail, Any, Any]]:
    """Yield the path and both sides of each change, in order; a missing side is `_ABSENT`."""
    waiting: list[tuple[_Trail, Any, Any]] = [((), a, b)]
    while waiting:
        trail, before, after = waiting.pop()
        if before is _ABSENT or after is _ABSENT:
            yield trail, before, after
        elif numbers.of(before) == numbers.of(after):
            continue
        elif isinstance(before, dict) and isinstance(after, dict):
            names = [*before, *(name for name in after if name not in before)]
            sides = [((trail, str(name)), before.get(name, _ABSENT), after.get(name, _ABSENT)) for name in names]
            waiting += reversed(sides)
        elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
            waiting += reversed(list(_changed_items(trail, before, after, numbers)))
        else:
            yield trail, before, after


def _changed_items(trail: _Trail, a: Any, b: Any, numbers: _Numbers) -> Iterator[tuple[_Trail, Any, Any]]:
    """Yield the changed items of two lists; an inserted item does not change the ones after it."""
    blocks, _ = changed_blocks([numbers.of(item) for item in a], [numbers.of(item) for item in b])
    for block in blocks:
        both = min(block.a_end - block.a_start, block.b_end - block.b_start)
        for step in range(both):
            yield (trail, block.b_start + step), a[block.a_start + step], b[block.b_start + step]
        yield from (((trail, at), a[at], _ABSENT) for at in range(block.a_start + both, block.a_end))
        yield from (((trail, at), _ABSENT, b[at]) for at in range(block.b_start + both, block.b_end))


def _change(trail: _Trail, before: Any, after: Any) -> JsonChange:
    steps: list[str] = []
    while trail:
        trail, step = trail
        is_name = isinstance(step, str) and _PLAIN_KEY.fullmatch(step)
        steps.append(f".{step}" if is_name else f"[{json.dumps(step, ensure_ascii=False)}]")
    path = "$" + "".join(reversed(steps))
    if before is _ABSENT:
        return JsonChange("added", path, "", shorten(_dump(after), _LONGEST))
    if after is _ABSENT:
        return JsonChange("removed", path, shorten(_dump(before), _LONGEST), "")
    text = None
    if isinstance(before, str) and isinstance(after, str):
        text = compare_texts(before, after)
        is_long = max(len(before), len(after)) > _LONGEST_INLINE or "\n" in before + after
        text = text if is_long or text.is_whitespace_only or text.is_nfkc_equal else None
    return JsonChange("changed", path, shorten(_dump(before), _LONGEST), shorten(_dump(after), _LONGEST), text)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _dump(value, indent=2)


def _dump(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    except (ValueError, TypeError, RecursionError):
        # What a user's function returns may contain itself, be too deep, or have keys that are not texts.
        return f"<{type(value).__name__}>"
