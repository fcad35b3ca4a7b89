"""What a dynamic variable came to, and the limit that every value keeps to."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

MOST_BYTES = 20_000
"""REPLAY-10: values, rendered segments and texts are clamped to so many bytes of UTF-8."""
READ_BYTES = 64_000
"""What is read of a long text: more than the clamp leaves, since taking out secrets may make it shorter."""


class Resolution(Struct, frozen=True):
    """The value of a dynamic variable, or why there is none: then `error_code` is not empty."""

    value: str = ""
    error_code: str = ""
    message: str = ""
    duration_ms: float = 0.0
    truncated: bool = False


def clamp(text: str) -> tuple[str, bool]:
    """A text of at most MOST_BYTES, cut between characters, and whether something was cut off."""
    # No character takes more than four bytes, so most texts need not be encoded to know.
    if len(text) * 4 <= MOST_BYTES or (text.isascii() and len(text) <= MOST_BYTES):
        return text, False
    encoded = text[: MOST_BYTES + 1].encode()
    if len(encoded) <= MOST_BYTES:
        return text, False
    return encoded[:MOST_BYTES].decode(errors="ignore"), True


def text_of(value: Any) -> str:
    """Any value as a text: strings as they are, nothing for null, and the rest as compact JSON (REPLAY-4)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return "" if value is None else str(value)


def _plain(value: Any) -> Any:
    """A nested value of which JSON knows every part: databases have dates and decimals too."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)
