"""A section of evalloom.yaml that belongs to one system: the struct of its keys, and further checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

from evalloom.core.model import Path as Steps
from evalloom.core.model import Record

Loaded = TypeVar("Loaded", bound=Struct)

Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, title="a number of seconds")]


def _unchanged(loaded: Loaded, folder: Path) -> Loaded:
    return loaded


def _no_errors(written: Record, folder: Path) -> Iterable[tuple[Steps, str]]:
    return ()


class Section(Struct, Generic[Loaded], frozen=True):
    """One top-level key of the file."""

    name: str
    description: str
    struct: type[Loaded]
    """Its fields are the keys. `msgspec.Meta` gives a key its limits and its description, and a list the `title` that
    messages use. Declare it with `forbid_unknown_fields=True`, so that a misspelled key is an error."""
    llms: tuple[str, ...] = ()
    """Keys that name an llm."""
    profiles: tuple[str, ...] = ()
    """Keys that name a profile or an llm."""
    local: tuple[str, ...] = ()
    """Further values that those keys may have."""
    resolve: Callable[[Loaded, Path], Loaded] = _unchanged
    """Completes the struct, for example with paths that start at the folder of the file."""
    check: Callable[[Record, Path], Iterable[tuple[Steps, str]]] = _no_errors
    """Checks the raw section: yields the path inside it and the message of each error that the types do not catch.
    It also runs on sections with wrong types."""
