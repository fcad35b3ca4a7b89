"""The Chinese phrases of pages, by the English ones. Those that only one system uses are in its `pages/chinese.py`."""

from __future__ import annotations

PHRASES: dict[str, str] = {}
