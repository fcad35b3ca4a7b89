"""The stand-ins for what the engine lacks; only code whose text mentions one pays for it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_NAMES = ("Intl", "toLocale", "structuredClone", "TextEncoder", "TextDecoder")


@lru_cache(maxsize=4096)
def more_for(source: str) -> str:
    """Return the script with the stand-ins that a source needs; empty if it mentions none."""
    return _stand_ins() if any(name in source for name in _NAMES) else ""


@lru_cache(maxsize=1)
def _stand_ins() -> str:
    return Path(__file__).with_name("stand_ins.js").read_text(encoding="utf-8")
