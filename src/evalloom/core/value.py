"""Converts results of users' code and of other programs to JSON values for the batch log."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args

import msgspec

from evalloom.core.errors import CallError
from evalloom.core.model import Outcome, Output, Path, show_path
from evalloom.core.text import quote, type_name

_DEEPEST = 200
_LONGEST_INTEGER = 10_000
"""Python refuses to print much longer integers."""
_OUTCOMES = get_args(Outcome)


def as_output(value: Any) -> Output:
    """Convert the result of a function, an Output or a JSON value, to an output. Raises CallError."""
    if type(value) is str and value.isascii():
        return Output(value)
    if not isinstance(value, Output):
        return Output(plain(value))
    if value.outcome not in _OUTCOMES:
        raise _bad(("outcome",), f"expected {', '.join(_OUTCOMES)}, got {quote(value.outcome)}")
    return Output(
        plain(value.value, ("value",)),
        _of_type(dict, value.steps, "steps"),
        plain(value.aggregation, ("aggregation",)),
        _of_type(list, value.sources, "sources"),
        value.outcome,
    )


def plain(value: Any, path: Path = ()) -> Any:
    """Convert a value to dict, list, str, int, float, bool and None. Raises CallError."""
    if value is None or isinstance(value, bool):
        return value
    if len(path) > _DEEPEST:
        raise CallError(
            "bad_output", f"the output is nested more than {_DEEPEST} levels deep. Return something flatter"
        )
    if isinstance(value, Enum):
        return plain(value.value, path)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if value.bit_length() > _LONGEST_INTEGER:
            got = f"got one of {value.bit_length()}"
            raise _bad(path, f"expected an integer of at most {_LONGEST_INTEGER} bits, {got}")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _bad(path, f"expected a number that JSON has, got {float(value)!r}. Return None instead")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(item, (*path, at)) for at, item in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, path): plain(item, (*path, key)) for key, item in value.items()}
    return _object(value, path)


def read_json(text: bytes) -> Any:
    """Decode a JSON text without losing digits of numbers. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_text(text: bytes) -> Any:
    """Decode a text that is a JSON object or list; return any other text as it is."""
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return read_json(text)
        except ValueError:
            pass
    return text.decode("utf-8", "replace")


def _of_type(wanted: type, value: Any, field: str) -> Any:
    converted = plain(value, (field,))
    if not isinstance(converted, wanted):
        raise _bad((field,), f"expected {type_name(wanted())}, got {type_name(converted)}")
    return converted


def _text(value: str, path: Path) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _bad(path, "expected text, got a string with half a surrogate pair in it") from None
    return str(value)


def _key(key: Any, path: Path) -> str:
    if not isinstance(key, str):
        raise _bad(path, f"expected keys that are strings, got the key {quote(key)}")
    return _text(key, path)


def _object(value: Any, path: Path) -> Any:
    """Convert an instance of a class with declared fields to an object."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in fields(value)}, path)
    if isinstance(value, msgspec.Struct):
        return plain({name: getattr(value, name) for name in value.__struct_fields__}, path)
    # Recognise pydantic and numpy by their attributes, without importing them.
    if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
        return plain(value.model_dump(mode="json"), path)
    if type(value).__module__ == "numpy":
        return plain(value.tolist(), path)
    raise _bad(path, f"expected a JSON value, got {type_name(value)}. Turn it into text, a list or a dict")


def _bad(path: Path, message: str) -> CallError:
    where = f"output.{show_path(path)}" if path and isinstance(path[0], str) else f"output{show_path(path)}"
    return CallError("bad_output", f"{where}: {message}")
