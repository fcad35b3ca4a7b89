"""Lists and objects that were written as text, as tables keep them in a cell."""

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
    """Whether a field is as good as absent: a table has no other way to leave a cell out."""
    return value is None or (isinstance(value, str) and not value.strip())


def as_list(value: Any, separator: str = "") -> list[Any] | None:
    """A list, or the list that a text stands for; None when the text does not read as one.

    The text is JSON, the repr of a Python list, the print of a NumPy array, or parts between separators.
    """
    if isinstance(value, list):
        return value
    if is_blank(value):
        return []
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.startswith("["):
        found = _json(text)
        found = _python(text) if found is None else found
        if isinstance(found, list):
            return found
    if not separator:
        return None
    return [part.strip() for part in text.split(separator) if part.strip()]


def as_object(value: Any) -> Record | None:
    """An object, or the object that a text stands for; None when the text does not read as one."""
    if isinstance(value, dict):
        return value
    if is_blank(value):
        return {}
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return None
    found = _json(value)
    found = _python(value.strip()) if found is None else found
    return found if isinstance(found, dict) else None


def read_cells(row: dict[str, str]) -> Record:
    """A row of a table as a record."""
    return {name: read_cell(name, text) for name, text in row.items()}


def read_cell(name: str, text: str, tags: str = "tags") -> object:
    """A list or object written as JSON in a cell, tags parted by `,` or `;`; every other cell is its text."""
    if name == tags and text[:1] != "[":
        return [tag.strip() for tag in text.replace(";", ",").split(",") if tag.strip()]
    if text[:1] in ("[", "{"):
        found = _json(text)
        return text if found is None else found
    return text


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _python(text: str) -> Any:
    """The value of a Python literal; None when it is none, or when JSON could not hold it."""
    try:
        found = _plain(ast.literal_eval(_with_commas(text)))
        orjson.dumps(found)
        return found
    except _NOT_PYTHON:
        return None


def _with_commas(text: str) -> str:
    """The text with a comma between neighbouring strings: NumPy prints none, and Python would join them into one."""
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
    """A Python value as JSON has it. Raises ValueError where JSON has nothing like it."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no string")
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{type(value).__name__} is not JSON")


def text_list(value: Any) -> list[str]:
    """The texts in a list, for tags and the like."""
    return [item for item in value if isinstance(item, str) and item.strip()] if isinstance(value, list) else []


def texts_of(value: Any) -> tuple[str, ...]:
    """One text or a list of texts, each once; what is neither counts for nothing."""
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(text for text in found if isinstance(text, str) and text))


def own_id(record: Record, *fields: str) -> str | int | None:
    """The first of the fields that holds a usable id."""
    for field in fields:
        found = record.get(field)
        if (isinstance(found, int) and not isinstance(found, bool)) or (isinstance(found, str) and found.strip()):
            return found
    return None


def id_text(found: str | int | None) -> str:
    return "" if found is None else str(found)
