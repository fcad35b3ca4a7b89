"""Names of a package that are imported when they are first used, so that importing the package costs nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The `__getattr__` of a package that shows names of other modules; `names` has those of each module."""
    homes = {name: module for module, shown in names.items() for name in shown}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(homes[name]), name)

    return load
