"""JSON Schemas: compiled once, and never a reason to fetch anything."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalloom.core.text import shorten

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_LONGEST = 200


def validator(schema: Any) -> Validator:
    """What holds values against a schema. Raises TypeError, ValueError or RecursionError where it is none."""
    return _compiled(json.dumps(schema))


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Validator:
    from jsonschema_rs import validator_for

    return validator_for(json.loads(schema), offline=True)


def first_line(fault: Exception) -> str:
    """What is wrong with a schema, or with a value, on one line."""
    return cut((str(fault) or type(fault).__name__).partition("\n")[0])


def cut(message: str) -> str:
    """A message of a validator, which may show the whole value."""
    return shorten(message, _LONGEST)
