"""What users pass in, told as JSON or in words: whatever it is, and whatever it raises when it is looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from evalloom.core.model import quote

_DEEPEST = 32
_TOO_DEEP = "…"


def as_json(value: Any) -> Any:
    """A value as plain JSON, with words in place of what JSON does not have. Never raises."""
    try:
        return _through_json(value)
    except Exception:  # users' code: their objects say what they are, or fail to
        return _in_parts(value, ())


def json_of(value: Any) -> str:
    """The JSON text of anything. Never raises."""
    try:
        return msgspec.json.encode(value, enc_hook=fields_of).decode()
    except Exception:  # users' code, as above
        return msgspec.json.encode(_in_parts(value, ())).decode()


def text_of(value: Any) -> str:
    """Material as text: a text as it is, JSON for anything else. Never raises."""
    return value if isinstance(value, str) else json_of(value)


def fields_of(value: Any) -> Any:
    """What an object that is no JSON has to say in JSON: a model its fields, anything else what it is."""
    return value.model_dump() if hasattr(value, "model_dump") else str(value)


def in_words(value: Any) -> str:
    """A value as it calls itself, else by its type. Never raises."""
    try:
        return str(value)
    except Exception:  # users' code
        return _by_type(value)


def quoted(value: Any) -> str:
    """A value for a message, as `quote` writes it, else by its type. Never raises."""
    try:
        return quote(value)
    except Exception:  # users' code
        return _by_type(value)


def fault_in_words(fault: BaseException) -> str:
    """An exception by its type and message. Never raises."""
    return f"{type(fault).__name__}: {in_words(fault)}"


def _by_type(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _through_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=fields_of))


def _in_parts(value: Any, around: tuple[int, ...]) -> Any:
    """The same as JSON, piece by piece, so that one piece that cannot be told spoils no other."""
    try:
        return _parted(value, around)
    except Exception:  # users' code
        return _encodable(in_words(value))


def _parted(value: Any, around: tuple[int, ...]) -> Any:
    if isinstance(value, str):
        return _encodable(value)
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return _through_json(value)
    if id(value) in around or len(around) == _DEEPEST:
        return _TOO_DEEP
    inside = (*around, id(value))
    if isinstance(value, dict):
        return {_encodable(in_words(key)): _in_parts(item, inside) for key, item in value.items()}
    return [_in_parts(item, inside) for item in value]


def _encodable(text: str) -> str:
    """A text that can stand in a file: half of a surrogate pair cannot."""
    return text.encode(errors="replace").decode()
