"""The Chinese phrases that only the pages of replays use, by the English ones."""

from __future__ import annotations

PHRASES: dict[str, str] = {}
