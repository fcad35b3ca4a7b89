"""JSON inside texts: a whole text, a fenced block, or one object among prose, as llms write it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import orjson

_DECODER = json.JSONDecoder()
_FENCE = re.compile(r"```[^\S\n]*(?:\w+[^\S\n]*)?\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_LONG_NUMBER = re.compile(r"\d{19}|[eE]\+?\d{3}")
_TRIES = 200
"""How many brackets are tried: a text of nothing but brackets would take time that grows with its square."""

NO_JSON: Any = object()


def loads(text: str) -> Any:
    """The value of a text that is JSON as a whole, else `NO_JSON`."""
    try:
        # orjson makes a float of an integer that 64 bits cannot hold, and infinity of 1e999.
        return _loads_slowly(text) if _LONG_NUMBER.search(text) else orjson.loads(text)
    except ValueError:
        return _loads_slowly(text)


def _loads_slowly(text: str) -> Any:
    """What orjson refuses or changes and JSON allows: a mark in front, half of a surrogate pair, long numbers."""
    text = text.strip().removeprefix("\ufeff")
    if not text or text[0] not in '{["-0123456789tfn':
        return NO_JSON
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return NO_JSON


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# The checks of one case look at the same text one after another.
@lru_cache(maxsize=4)
def object_in(text: str) -> Any:
    """The JSON object that a text is or holds, else `NO_JSON`."""
    return next((found for found in values_in(text) if isinstance(found, dict)), NO_JSON)


def values_in(text: str) -> Iterator[Any]:
    """The JSON of a text: all of it, or else what stands in fences, or else objects and lists among the prose."""
    whole = loads(text)
    if whole is not NO_JSON:
        yield whole
        return
    fenced = [value for block in _FENCE.findall(text) if (value := loads(block)) is not NO_JSON]
    yield from fenced or _among_prose(text)


def _among_prose(text: str) -> Iterator[Any]:
    position = 0
    for _ in range(_TRIES):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        try:
            value, position = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = opening.end()
        else:
            yield value
