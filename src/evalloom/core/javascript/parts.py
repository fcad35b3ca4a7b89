"""The parts of the surroundings of code: a context compiles those that it gets, so it gets what the code mentions."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).with_name("parts")
_MODULES = "modules"
_NAMES = {
    _MODULES: ("require",),
    "globals": ("console", "process", "Timeout", "Immediate", "global."),
    "values": ("structuredClone", "TextEncoder", "TextDecoder"),
    "numbers": ("Intl", "toLocale"),
}


@lru_cache(maxsize=4096)
def parts_for(source: str, has_modules: bool) -> tuple[str, ...]:
    """Return the names of the parts that a source needs."""
    return tuple(
        part
        for part, names in _NAMES.items()
        if (part == _MODULES and has_modules) or any(name in source for name in names)
    )
