"""A section of evalloom.yaml that belongs to one system: what may stand in it, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from evalloom.core.model import Path as Steps
from evalloom.core.model import Record

Loaded = TypeVar("Loaded", bound=Struct)


def _no_faults(written: Record, folder: Path) -> Iterator[tuple[Steps, str]]:
    return iter(())


class Section(Struct, Generic[Loaded], frozen=True):
    """One top-level key of the file. `load` makes a struct of what is written there, also of nothing at all."""

    name: str
    description: str
    keys: Record
    """The JSON Schema of each key."""
    load: Callable[[Record, Path], Loaded]
    """What is written, without empty keys, and the folder of the file, as the struct that the system works with."""
    llms: tuple[str, ...] = ()
    """Keys that name an llm."""
    profiles: tuple[str, ...] = ()
    """Keys that name a profile or an llm."""
    local: tuple[str, ...] = ()
    """What those keys may say beside the name of an llm."""
    faults: Callable[[Record, Path], Iterator[tuple[Steps, str]]] = _no_faults
    """What has the right form and still cannot be meant: the path inside the section, and what is wrong."""
