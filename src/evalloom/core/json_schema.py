"""Compiles JSON Schemas once, without fetching references."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalloom.core.text import shorten

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_LONGEST = 200


def validator(schema: Any) -> Validator:
    """Return the validator of a schema. Raises TypeError, ValueError or RecursionError if it is not a schema."""
    return _compiled(json.dumps(schema))


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Validator:
    from jsonschema_rs import validator_for

    return validator_for(json.loads(schema), offline=True)


def first_line(error: Exception) -> str:
    """Return the first line of an error about a schema or a value, shortened."""
    return cut((str(error) or type(error).__name__).partition("\n")[0])


def cut(message: str) -> str:
    """Shorten a message of a validator, which may contain the whole value."""
    return shorten(message, _LONGEST)
