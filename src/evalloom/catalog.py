"""The one list of systems. Everything above the engine takes the catalog from here and passes it down."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from evalloom.engine.system import Catalog, Failure, System
from evalloom.hop.system import SYSTEM as HOP
from evalloom.interop.system import SYSTEM as INTEROP
from evalloom.pipeline.system import SYSTEM as PIPELINE
from evalloom.prompt_eval.system import SYSTEM as PROMPT_EVAL
from evalloom.rag.system import SYSTEM as RAG
from evalloom.replay.system import SYSTEM as REPLAY

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SYSTEMS: tuple[System, ...] = (HOP, PIPELINE, PROMPT_EVAL, REPLAY, RAG, INTEROP)
COMMANDS = (
    *("run", "score", "compare", "baseline", "batches"),
    *("validate", "convert", "inspect", "schema", "demo", "init", "doctor"),
)
"""The commands of the engine, whose names no system may take."""
GROUP = "evalloom.systems"
"""The group of entry points under which packages of other people register a `System`."""

DEFAULT_DIALECT = PIPELINE.dialects[0].name
"""What `evalloom init` writes unless another is named, and what the demo converts files of other tools to."""


@cache
def load() -> Catalog:
    """The catalog: the systems above, and those of other packages that are installed."""
    systems, failures = list(SYSTEMS), []
    for point in _entry_points():
        try:
            systems.append(_load(point, systems))
        except Exception as error:  # the code of another package: whatever goes wrong in it must not stop evalloom
            failures.append(Failure(point.name, f"{_package(point)}: {type(error).__name__}: {error}"))
    return Catalog(systems, failures)


def load_for_python() -> Catalog:
    """The catalog for Python code, where no command line says which systems are left out: a warning does."""
    catalog = load()
    for failure in catalog.failures:
        warnings.warn(f"the system {failure.name!r} is left out: {failure.reason} [system_failed]", stacklevel=3)
    return catalog


def _entry_points() -> Iterable[EntryPoint]:
    """The entry points of the group. A look at the files takes 2 ms, the module that reads them 15 ms to import."""
    if not any(map(_has_group, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _has_group(folder: str) -> bool:
    """Whether a package that is installed in a folder registers anything under the group."""
    try:
        infos = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(_mentions_group(Path(info, "entry_points.txt")) for info in infos)


def _mentions_group(file: Path) -> bool:
    try:
        return GROUP.encode() in file.read_bytes()
    except OSError:
        return False


def _load(point: EntryPoint, systems: list[System]) -> System:
    system = point.load()
    if not isinstance(system, System):
        raise TypeError(f"{point.value}: expected a System, got {type(system).__name__}")
    _refuse_clashes(system, systems)
    return structs.replace(system, package=_package(point))


def _refuse_clashes(system: System, systems: list[System]) -> None:
    """Names must be unique: a second 'rag' would hide the first, or be hidden by it."""
    known = Catalog(systems)
    for kind, ours, theirs in (
        ("system", {one.name for one in systems}, [system.name]),
        ("dialect", {one.name for one in known.formats.dialects}, [one.name for one in system.dialects]),
        ("target", {one.name for one in known.all_targets}, [one.name for one in system.targets]),
        ("check", {*known.matchers.kinds}, [one.kind for one in system.matchers]),
        ("reporter", {one.suffix for one in known.reporters}, [one.suffix for one in system.reporters]),
        ("command", {*COMMANDS, *(one.name for one in known.commands)}, [one.name for one in system.commands]),
        ("flag of validate", {one.name for one in known.rule_flags}, [one.name for one in system.rule_flags]),
        ("settings section", {one.name for one in known.sections}, [one.name for one in system.sections]),
    ):
        if taken := [name for name in theirs if name in ours]:
            raise ValueError(f"there is a {kind} {taken[0]!r} already")


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
