"""The filters of Nunjucks, for templates of promptfoo files."""

from __future__ import annotations

import html
import random
import re
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from evalloom.core.text import describe
from evalloom.interop.promptfoo import javascript_values as js

_LONGEST = 4_000_000
_TAGS = re.compile(r"</?[A-Za-z][^<>]*>")


def _capitalize(value: Any) -> str:
    text = js.text_of(value)
    return text[:1].upper() + text[1:].lower()


def _center(value: Any, width: Any = 80) -> str:
    return js.text_of(value).center(min(int(js.number_of(width)), _LONGEST))


def _default(value: Any, other: Any, is_strict: Any = False) -> Any:
    """`other` for a missing value; with `true` also for an empty one."""
    is_missing = not js.truth(value) if is_strict else js.is_undefined(value)
    return other if is_missing else value


def _dictsort(value: Any, case_sensitive: Any = False, by: str = "key") -> list[list[Any]]:
    position = 0 if by == "key" else 1
    if not isinstance(value, dict):
        raise _unexpected("an object", value)
    pairs = [[name, inner] for name, inner in value.items()]
    return sorted(pairs, key=lambda pair: _sort_key(pair[position], case_sensitive))


def _dump(value: Any, indent: Any = None) -> str:
    if js.is_undefined(value):
        return ""
    spaces = None if indent is None else min(int(js.number_of(indent)), 10)
    return js.json_text(value, spaces or None)


def _first(value: Any) -> Any:
    return next(iter(_items(value)), None)


def _float(value: Any, default: Any = None) -> Any:
    match = re.match(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", js.text_of(value))
    return default if match is None else float(match[0])


def _groupby(value: Any, attribute: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in _items(value):
        groups.setdefault(js.text_of(_member(item, attribute)), []).append(item)
    return groups


def _indent(value: Any, width: Any = 4, first: Any = False) -> str:
    spaces = " " * min(int(js.number_of(width)), 1_000)
    lines = js.text_of(value).split("\n")
    if sum(map(len, lines)) + len(lines) * len(spaces) > _LONGEST:
        raise ValueError(f"indent: expected at most {_LONGEST:,} characters")
    return "\n".join(line if not at and not first else spaces + line for at, line in enumerate(lines))


def _int(value: Any, default: Any = None, base: Any = 10) -> Any:
    match = re.match(r"\s*([-+]?\d{1,300})", js.text_of(value))
    return default if match is None else int(match[1], int(base))


def _items(value: Any) -> list[Any]:
    """Return the items of a list or the characters of a text. What is missing is an error, and not an empty list."""
    if isinstance(value, list | tuple | str):
        return list(value)
    raise _unexpected("a list", value)


def _join(value: Any, separator: Any = "", attribute: Any = None) -> str:
    if isinstance(value, str):
        raise _unexpected("a list", value)
    items = _items(value) if attribute is None else [_member(item, attribute) for item in _items(value)]
    return js.join(js.text_of(separator), items)


def _last(value: Any) -> Any:
    return next(reversed(_items(value)), None)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _list(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [{"key": name, "value": inner} for name, inner in value.items()]
    return _items(value)


def _member(value: Any, name: Any) -> Any:
    for part in js.text_of(name).split("."):
        value = js.member(value, part)
        if value is js.UNDEFINED:
            return None
    return value


def _batch(value: Any, size: Any, fill: Any = None) -> list[list[Any]]:
    items, count = _items(value), max(1, int(js.number_of(size)))
    rows = [items[at : at + count] for at in range(0, len(items), count)]
    if rows and fill is not None:
        rows[-1] += [fill] * min(count - len(rows[-1]), 10_000)
    return rows


def _slice(value: Any, count: Any, fill: Any = None) -> list[list[Any]]:
    items, columns = _items(value), min(max(1, int(js.number_of(count))), 10_000)
    size, extra = divmod(len(items), columns)
    parts, start = [], 0
    for at in range(columns):
        end = start + size + (at < extra)
        part = items[start:end]
        parts.append([*part, fill] if fill is not None and at >= extra else part)
        start = end
    return parts


def _round(value: Any, digits: Any = 0, method: str = "round") -> Any:
    import math

    factor = 10 ** min(max(int(js.number_of(digits)), 0), 15)
    scaled = js.number_of(value) * factor
    if math.isnan(scaled) or math.isinf(scaled):
        return scaled
    whole = {"ceil": math.ceil, "floor": math.floor}.get(method, lambda number: math.floor(number + 0.5))(scaled)
    return whole / factor if factor > 1 else whole


def _select(value: Any, attribute: Any = None) -> list[Any]:
    return [item for item in _items(value) if js.truth(item if attribute is None else _member(item, attribute))]


def _reject(value: Any, attribute: Any = None) -> list[Any]:
    return [item for item in _items(value) if not js.truth(item if attribute is None else _member(item, attribute))]


def _sort(value: Any, is_reversed: Any = False, case_sensitive: Any = False, attribute: Any = None) -> list[Any]:
    def key(item: Any) -> Any:
        return _sort_key(item if attribute is None else _member(item, attribute), case_sensitive)

    return sorted(_items(value or []), key=key, reverse=js.truth(is_reversed))


def _sort_key(value: Any, case_sensitive: Any) -> tuple[int, Any]:
    if isinstance(value, bool | int | float):
        return 0, value
    text = js.text_of(value)
    return 1, text if js.truth(case_sensitive) else text.lower()


def _striptags(value: Any, keeps_lines: Any = False) -> str:
    text = _without_tags(js.text_of(value)).strip()
    if not js.truth(keeps_lines):
        return re.sub(r"\s+", " ", text)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(re.sub(r"[ \t]+", " ", line).strip() for line in text.split("\n")))


def _without_tags(text: str) -> str:
    """Remove elements and comments. A comment without an end is searched once, and not from each of its beginnings."""
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start])
        at = end + 3
    return _TAGS.sub("", "".join([*parts, text[at:]]))


def _sum(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = _items(value) if attribute is None else [_member(item, attribute) for item in _items(value)]
    return js.number_of(start) + sum(map(js.number_of, items))


def _text(value: Any) -> str:
    """Return a value as text; one that is missing has none."""
    if value is None or js.is_undefined(value):
        raise _unexpected("a text", value)
    return js.text_of(value)


def _title(value: Any) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in js.text_of(value).split(" "))


def _truncate(value: Any, length: Any = 255, cuts_words: Any = False, end: Any = None) -> str:
    text, most = js.text_of(value), int(js.number_of(length))
    if len(text) <= most:
        return text
    cut = text[:most]
    if not js.truth(cuts_words):
        space = text.rfind(" ", 0, most + 1)
        cut = text[: space if space > 0 else most]
    return cut + ("..." if end is None else js.text_of(end))


def _unexpected(expected: str, value: Any) -> TypeError:
    return TypeError(f"expected {expected}, got {'nothing' if js.is_undefined(value) else describe(value)}")


def _unique(value: Any) -> list[Any]:
    kept: list[Any] = []
    seen: set[str] = set()
    for item in _items(value):
        if (text := js.json_text(item)) not in seen:
            seen.add(text)
            kept.append(item)
    return kept


def _urlencode(value: Any) -> str:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else (pair for pair in value if isinstance(pair, list))
        return "&".join("=".join(quote(js.text_of(part), safe="") for part in pair) for pair in pairs)
    return quote(js.text_of(value), safe="!'()*-._~")


def _wordwrap(value: Any, width: Any = 79) -> str:
    return "\n".join(textwrap.wrap(js.text_of(value), max(1, int(js.number_of(width)))))


def _escape(value: Any) -> str:
    return html.escape(js.text_of(value)).replace("&#x27;", "&#39;")


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(js.number_of(value)),
    "batch": _batch,
    "capitalize": _capitalize,
    "center": _center,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "dump": _dump,
    "e": _escape,
    "escape": _escape,
    "first": _first,
    "float": _float,
    "forceescape": _escape,
    "groupby": _groupby,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": lambda value: js.text_of(value).lower(),
    "nl2br": lambda value: js.replace(js.text_of(value), "\n", "<br />\n"),
    "random": lambda value: random.choice(_items(value) or [None]),
    "reject": _reject,
    "rejectattr": _reject,
    "replace": lambda value, old, new, most=-1: js.replace(js.text_of(value), old, new, int(most)),
    "reverse": lambda value: value[::-1] if isinstance(value, str | list) else value,
    "round": _round,
    "safe": lambda value: value,
    "select": _select,
    "selectattr": _select,
    "slice": _slice,
    "sort": _sort,
    "string": _text,
    "striptags": _striptags,
    "sum": _sum,
    "title": _title,
    "tojson": _dump,
    "trim": lambda value: _text(value).strip(),
    "truncate": _truncate,
    "unique": _unique,
    "upper": lambda value: js.text_of(value).upper(),
    "urlencode": _urlencode,
    "wordcount": lambda value: len(re.findall(r"\w+", js.text_of(value))),
    "wordwrap": _wordwrap,
}
