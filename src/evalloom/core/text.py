"""Texts for people: lists of names that stay short, and long texts cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

CLAMP = 20_000
"""How many characters of what was sent and received a trace keeps."""
_MANY_NAMES = 12
_LONG_NAME = 40


def listed(names: Iterable[Any]) -> str:
    """Names for a message: the first dozen, none of them long."""
    shown = [str(name)[:_LONG_NAME] for name in names]
    more = f" and {len(shown) - _MANY_NAMES} more" if len(shown) > _MANY_NAMES else ""
    return ", ".join(shown[:_MANY_NAMES]) + more if shown else "none"


def clamp(text: str, limit: int = CLAMP) -> str:
    """A text for the trace: its beginning, and how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} characters more)"
