"""Resolves plain scalars by the core schema of YAML 1.2: `no`, `on` and dates are texts."""

from __future__ import annotations

from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.files.jsontext import JsonError, exact_float

NULL = ("", "~", "null", "Null", "NULL")
TRUE = ("true", "True", "TRUE")
FALSE = ("false", "False", "FALSE")
_INT = lazy_pattern(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = lazy_pattern(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain_value(text: str) -> Any:
    """Return the value of a scalar without quotes and tag. Raises JsonError for a number that JSON lacks."""
    if text in NULL:
        return None
    if text in TRUE or text in FALSE:
        return text in TRUE
    if _NOT_FINITE.fullmatch(text):
        raise JsonError("yaml_parse_error", f"{text!r} is not a JSON number. Write null or a string")
    return number(text)


def number(text: str) -> Any:
    """Return the number that a text represents, or the text itself."""
    if _INT.fullmatch(text):
        # A longer number is an unquoted id; as text it keeps all digits.
        if len(text) > 24:
            return text
        value = int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
        return value if -(2**63) <= value < 2**64 else text
    return exact_float(text) if _FLOAT.fullmatch(text) else text
