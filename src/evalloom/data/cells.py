"""Parses lists and objects that a table holds as text in a cell."""

from __future__ import annotations

import ast
import io
import math
import tokenize
from itertools import pairwise
from typing import Any

import orjson

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record

_LONGEST_WORD = 60
_NEIGHBOURS = lazy_pattern(r"['\"]\s+\w?['\"]")
_NOT_PYTHON = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError)


def is_blank(value: object) -> bool:
    """Whether a field counts as absent: a table can only leave a cell empty."""
    return value is None or (isinstance(value, str) and not value.strip())


def as_list(value: Any, separator: str = "") -> list[Any] | None:
    """Return a list, or parse a text as one; None if it is not a list.

    The text is JSON, the repr of a Python list, a printed NumPy array, or items between separators.
    """
    if isinstance(value, list):
        return value
    if is_blank(value):
        return []
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.startswith("["):
        items = _json(text)
        items = _python(text) if items is None else items
        if isinstance(items, list):
            return items
    if not separator:
        return None
    return [part.strip() for part in text.split(separator) if part.strip()]


def as_object(value: Any) -> Record | None:
    """Return an object, or parse a text as one; None if it is not an object."""
    if isinstance(value, dict):
        return value
    if is_blank(value):
        return {}
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return None
    fields = _json(value)
    fields = _python(value.strip()) if fields is None else fields
    return fields if isinstance(fields, dict) else None


def read_cells(row: dict[str, str]) -> Record:
    """Turn a row of a table into a record."""
    return {name: read_cell(name, text) for name, text in row.items()}


def read_cell(name: str, text: str, tags: str = "tags") -> object:
    """Parse JSON lists and objects, and tags separated by `,` or `;`; return the text of any other cell."""
    if name == tags and text[:1] != "[":
        return [tag.strip() for tag in text.replace(";", ",").split(",") if tag.strip()]
    if text[:1] in ("[", "{"):
        value = _json(text)
        return text if value is None else value
    return text


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _python(text: str) -> Any:
    """Return the value of a Python literal; None if it is not one, or if JSON cannot represent it."""
    try:
        value = _plain(ast.literal_eval(_with_commas(text)))
        orjson.dumps(value)
        return value
    except _NOT_PYTHON:
        return None


def _with_commas(text: str) -> str:
    """Insert commas between adjacent strings: NumPy prints none, and Python would concatenate the strings."""
    if not _NEIGHBOURS.search(text):
        return text
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE)
    ]
    lines = io.StringIO(text).readlines()
    for token, after in reversed(list(pairwise(tokens))):
        if token.type == after.type == tokenize.STRING:
            row, column = token.end
            lines[row - 1] = lines[row - 1][:column] + "," + lines[row - 1][column:]
    return "".join(lines)


def _plain(value: Any) -> Any:
    """Convert a Python value to JSON types. Raises ValueError if JSON cannot represent it."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is not a string")
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{type(value).__name__} is not JSON")


def text_list(value: Any) -> list[str]:
    """Return the non-blank texts in a list, such as tags."""
    return [item for item in value if isinstance(item, str) and item.strip()] if isinstance(value, list) else []


def texts_of(value: Any) -> tuple[str, ...]:
    """Return the distinct texts of a text or a list; anything else is ignored."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def own_id(record: Record, *fields: str) -> str | int | None:
    """Return the first of the fields that has a usable id."""
    for field in fields:
        id = record.get(field)
        if (isinstance(id, int) and not isinstance(id, bool)) or (isinstance(id, str) and id.strip()):
            return id
    return None


def id_text(id: str | int | None) -> str:
    return "" if id is None else str(id)
