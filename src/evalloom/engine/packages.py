"""Loads the systems of other packages by their entry points, checks them, and reports those that fail."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from evalloom.core.lazy import lazy_pattern
from evalloom.engine.system import COMMANDS, Catalog, Failure, System

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import TracebackType

    from evalloom.data.dialect import Dialect
    from evalloom.engine.parts import Parts

GROUP = "evalloom.systems"
"""The group of entry points under which other packages register a `System`."""
VALIDATE_FLAGS = frozenset(
    f"--{name}"
    for name in ("dialect", "map", "encoding", "root", "strict", "deep", "format", "json", "output", "force", "help")
)
_NAME, _FLAG, _SUFFIX = (
    lazy_pattern(r"[a-z][a-z0-9-]*"),
    lazy_pattern(r"--[a-z][a-z0-9-]*"),
    lazy_pattern(r"(\.[a-z0-9]+)+"),
)
Result = TypeVar("Result")


def load_packages(systems: Iterable[System]) -> Catalog:
    """Return the catalog of these systems and those of other packages; a system that cannot be loaded is a failure."""
    loaded, failures = list(systems), []
    try:
        points = list(_entry_points())
    except Exception as error:  # the files of another package may hold anything
        failures.append(Failure(GROUP, f"entry points cannot be read: {type(error).__name__}: {error}"))
        points = []
    for point in points:
        try:
            loaded.append(_load(point, Catalog(loaded)))
        except (Exception, SystemExit) as error:  # code of another package: whatever it does must not stop evalloom
            failures.append(Failure(point.name, f"{_package(point)}: {type(error).__name__}: {error}"))
    return Catalog(loaded, failures)


def package_in(trace: TracebackType | None, catalog: Catalog) -> str:
    """Return the package whose system raised or passed on an error; empty if only evalloom did."""
    from traceback import walk_tb

    owners = {system.module: system.package for system in catalog.systems if system.package}
    modules = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(trace))
    return next((owners[module] for module in modules if module in owners), "")


def _entry_points() -> Iterable[EntryPoint]:
    """Return the entry points of the group. Searching the files takes 2 ms; importing importlib.metadata 15 ms."""
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
    for info in infos:
        # Without a buffer: that would take twice as many calls of the system for each package.
        with suppress(OSError), open(os.path.join(info, "entry_points.txt"), "rb", buffering=0) as stream:
            if GROUP.encode() in stream.read():
                return True
    return False


def _load(point: EntryPoint, catalog: Catalog) -> System:
    system = point.load()
    if not isinstance(system, System):
        raise TypeError(f"{point.value}: expected a System, got {type(system).__name__}")
    parts = system.parts()
    for problem in _problems(system, parts, catalog):
        raise ValueError(problem)
    package = _package(point)
    from msgspec import structs

    guarded = structs.replace(
        parts,
        dialects=tuple(_guarded_dialect(dialect, package) for dialect in parts.dialects),
        documents=tuple(
            structs.replace(document, matches=_guarded(document.matches, package, False))
            for document in parts.documents
        ),
    )
    module = point.module.partition(".")[0]
    return System(system.name, system.title, lambda: guarded, system.commands, package, module)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _problems(system: System, parts: Parts, catalog: Catalog) -> Iterator[str]:
    """Yield why a system cannot be loaded: a name that is in use, or not of the usual form."""
    from evalloom.settings.file import ENGINE_KEYS

    names: list[tuple[str, set[str], list[str], re.Pattern[str]]] = [
        ("system", {part.name for part in catalog.systems}, [system.name], _NAME),
        ("dialect", {part.name for part in catalog.formats.dialects}, [part.name for part in parts.dialects], _NAME),
        ("target", {part.name for part in catalog.all_targets}, [part.name for part in parts.targets], _NAME),
        ("check", {*catalog.matchers.kinds}, [part.kind for part in parts.matchers], re.compile(r"[a-z]\w*")),
        ("reporter", {part.suffix for part in catalog.reporters}, [part.suffix for part in parts.reporters], _SUFFIX),
        ("exporter", {part.name for part in catalog.exporters}, [part.name for part in parts.exporters], _NAME),
        (
            "command",
            {*COMMANDS, *(part.name for part in catalog.commands)},
            [part.name for part in system.commands],
            _NAME,
        ),
        (
            "flag of validate",
            {*VALIDATE_FLAGS, *(part.name for part in catalog.rule_flags)},
            [part.name for part in parts.rule_flags],
            _FLAG,
        ),
        (
            "section of evalloom.yaml",
            {*ENGINE_KEYS, *(part.name for part in catalog.sections)},
            [part.name for part in parts.sections()],
            re.compile(r"[a-z]\w*"),
        ),
        ("kind of batch", {*catalog.batch_kinds}, [part.name for part in parts.batch_kinds()], re.compile(r"\w[\w-]*")),
    ]
    for kind, used, added, form in names:
        for number, name in enumerate(added):
            if not isinstance(name, str) or not form.fullmatch(name):
                yield f"{kind}: expected a name like {form.pattern}, got {name!r}"
            elif name in used or name in added[:number]:
                yield f"there is a {kind} {name!r} already"
    for dialect in parts.dialects:
        if not isinstance(dialect.rank, int) or not isinstance(dialect.summary, str) or dialect.is_fallback:
            yield f"dialect {dialect.name!r}: expected an integer rank, a summary and is_fallback=False"
    for command in system.commands:
        if not isinstance(command.summary, str):
            yield f"command {command.name!r}: expected a summary, got {command.summary!r}"
    if parts.starter is not None and not parts.dialects:
        yield "starter: expected a dialect that it is written in, got none"


def _guarded_dialect(dialect: Dialect, package: str) -> Dialect:
    """Guard the functions of a dialect that are called for files of all dialects, so that it cannot break others."""
    from msgspec import structs

    return structs.replace(
        dialect,
        sniff=_guarded(dialect.sniff, package, ""),
        weaker=tuple((rank, _guarded(sniff, package, "")) for rank, sniff in dialect.weaker),
        expand=_guarded(dialect.expand, package, None),
        expand_in=None if dialect.expand_in is None else _guarded(dialect.expand_in, package, None),
        mapping_from=_guarded(dialect.mapping_from, package, ""),
        forget=_guarded(dialect.forget, package, None),
    )


def _guarded(function: Callable[..., Result], package: str, default: Result) -> Callable[..., Result]:
    """Wrap a function of another package: an error becomes a warning, and the default its result."""

    @wraps(function)
    def call(*args: Any) -> Result:
        try:
            return function(*args)
        except Exception as error:
            import warnings

            name = getattr(function, "__qualname__", "a function")
            warnings.warn(f"{package}: {name} fails: {type(error).__name__}: {error} [system_failed]", stacklevel=2)
            return default

    return call
