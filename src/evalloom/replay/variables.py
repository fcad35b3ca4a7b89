"""The variables that a dataset row gives a context recipe (REPLAY-4)."""

from __future__ import annotations

import json
from typing import Any

from evalloom.core.model import Record
from evalloom.core.text import describe

_WORDS = {True: "true", False: "false", None: "null"}


class RowInvalid(ValueError):
    """A row that gives no variables, because it or its `variables` is no object."""


def variables_of(row: Any) -> dict[str, str]:
    """The variables of a row as texts; a `variables` object is the only source where there is one."""
    if type(row) is not dict:
        raise RowInvalid(f"expected an object, got {describe(row)}")
    found = row
    if "variables" in row:
        found = row["variables"]
        if type(found) is not dict:
            raise RowInvalid(f"variables: expected an object, got {describe(found)}")
    try:
        return texts_of(found)
    except RecursionError:
        raise RowInvalid("expected values of at most a few hundred levels, got more") from None


def texts_of(found: Record) -> dict[str, str]:
    """The values of an object as texts, but for those of reserved names."""
    return {name: value if type(value) is str else as_text(value) for name, value in found.items() if name[:1] != "_"}


def as_text(value: Any) -> str:
    """Strings as they are, everything else as compact JSON with sorted keys and plain Unicode."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if value is None or type(value) is bool:
        return _WORDS[value]
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
