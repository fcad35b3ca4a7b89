"""Reads the variables of a context recipe from a dataset row (REPLAY-4)."""

from __future__ import annotations

import json
from typing import Any

from evalloom.core.model import Record
from evalloom.core.text import describe

_JSON_WORDS = {True: "true", False: "false", None: "null"}


class RowInvalid(ValueError):
    """Raised for a row that is not an object, or whose `variables` is not one."""


def variables_of(row: Any) -> dict[str, str]:
    """Return the variables of a row as texts, from its `variables` object if it has one."""
    if type(row) is not dict:
        raise RowInvalid(f"expected an object, got {describe(row)}")
    variables = row.get("variables", row)
    if type(variables) is not dict:
        raise RowInvalid(f"variables: expected an object, got {describe(variables)}")
    try:
        return texts_of(variables)
    except RecursionError:
        raise RowInvalid("expected values of at most a few hundred levels, got more") from None


def texts_of(variables: Record) -> dict[str, str]:
    """Convert values to texts, and leave out reserved names, which begin with an underscore."""
    # Called for every row of a replay, so strings do not take the way through `as_text`.
    return {
        name: value if type(value) is str else as_text(value) for name, value in variables.items() if name[:1] != "_"
    }


def as_text(value: Any) -> str:
    """Return a string as it is, and anything else as compact JSON with sorted keys and unescaped Unicode."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if value is None or type(value) is bool:
        return _JSON_WORDS[value]
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
