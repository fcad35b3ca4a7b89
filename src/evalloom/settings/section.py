"""A section of evalloom.yaml that belongs to one system: what may stand in it, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from evalloom.core.model import Path as Steps
from evalloom.core.model import Record

Loaded = TypeVar("Loaded", bound=Struct)


def _no_faults(written: Record, folder: Path) -> Iterable[tuple[Steps, str]]:
    return ()


class Section(Struct, Generic[Loaded], frozen=True):
    """One top-level key of the file. The building blocks for `keys` are in `evalloom.settings.form`."""

    name: str
    description: str
    keys: Record
    """The JSON Schema of each key."""
    load: Callable[[Record, Path], Loaded]
    """Turns what is written, without empty keys, into the struct that the system works with.

    Relative paths start at the folder of the file. Without the section, or without a file, nothing is written.
    """
    llms: tuple[str, ...] = ()
    """Keys that name an llm."""
    profiles: tuple[str, ...] = ()
    """Keys that name a profile or an llm."""
    local: tuple[str, ...] = ()
    """Values that those keys may have beside such names."""
    faults: Callable[[Record, Path], Iterable[tuple[Steps, str]]] = _no_faults
    """Checks what the schema cannot: yields the path inside the section, and what is wrong there."""
