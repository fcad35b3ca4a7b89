"""Converts arbitrary user values to JSON or text, even if their own methods raise."""

from __future__ import annotations

from typing import Any

import msgspec

from evalloom.core.text import quote

_DEEPEST = 32
_TOO_DEEP = "…"


def as_json(value: Any) -> Any:
    """Convert a value to plain JSON; values without a JSON form become text. Never raises."""
    try:
        return _round_trip(value)
    except Exception:  # users' code: objects convert themselves, and may raise
        return _convert_safely(value, ())


def json_of(value: Any) -> str:
    """Encode any value as JSON text. Never raises."""
    try:
        return msgspec.json.encode(value, enc_hook=fields_of).decode()
    except Exception:  # users' code, as above
        return msgspec.json.encode(_convert_safely(value, ())).decode()


def text_of(value: Any) -> str:
    """Return a text unchanged and anything else as JSON. Never raises."""
    return value if isinstance(value, str) else json_of(value)


def fields_of(value: Any) -> Any:
    """Convert an object that is not JSON: a model to its fields, anything else to text."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)


def in_words(value: Any) -> str:
    """Return `str(value)`, or the type name if that fails. Never raises."""
    try:
        return str(value)
    except Exception:  # users' code
        return _type_in_brackets(value)


def quoted(value: Any) -> str:
    """Return `quote(value)`, or the type name if that fails. Never raises."""
    try:
        return quote(value)
    except Exception:  # users' code
        return _type_in_brackets(value)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an exception. Never raises."""
    return f"{type(error).__name__}: {in_words(error)}"


def _type_in_brackets(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _round_trip(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=fields_of))


def _convert_safely(value: Any, enclosing: tuple[int, ...]) -> Any:
    """Convert a value piece by piece, so that one bad piece does not affect the others."""
    try:
        return _convert(value, enclosing)
    except Exception:  # users' code
        return _encodable(in_words(value))


def _convert(value: Any, enclosing: tuple[int, ...]) -> Any:
    if isinstance(value, str):
        return _encodable(value)
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return _round_trip(value)
    if id(value) in enclosing or len(enclosing) == _DEEPEST:
        return _TOO_DEEP
    nested = (*enclosing, id(value))
    if isinstance(value, dict):
        return {_encodable(in_words(key)): _convert_safely(item, nested) for key, item in value.items()}
    return [_convert_safely(item, nested) for item in value]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8."""
    return text.encode(errors="replace").decode()
