"""Loads names and compiles patterns on first use, because imports and compiling dominate the start-up time."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING at run time, without importing typing
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from typing import Any, AnyStr


def lazy_names(package: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that exports names of other modules; `names` lists them by module."""
    homes = {name: module for module, shown in names.items() for name in shown}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(homes[name]), name)
        # `from package import name` asks twice, so the second time finds it without this function.
        sys.modules[package].__dict__[name] = value
        return value

    return load


class _LazyPattern:
    """Behaves like a compiled pattern, and is compiled when the first attribute is used."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._arguments: tuple[Any, int] = (pattern, flags)

    def __getattr__(self, name: str) -> object:
        import re

        value: object = getattr(re.compile(*self._arguments), name)
        # The next access does not call this function, so a search is as fast as with a compiled pattern.
        self.__dict__[name] = value
        return value


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled on first use: compiling all of ours would take a sixth of a short run."""
    return _LazyPattern(pattern, flags)  # type: ignore[return-value]
