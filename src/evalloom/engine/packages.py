"""Systems of other packages: found by their entry points, checked before they are let in, and named when they fail."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from evalloom.core.lazy import lazy_pattern
from evalloom.engine.system import COMMANDS, Catalog, Failure, System

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import TracebackType

    from evalloom.data.dialect import Dialect
    from evalloom.data.formats import Document
    from evalloom.engine.parts import Parts

GROUP = "evalloom.systems"
"""The group of entry points under which packages of other people register a `System`."""
VALIDATE_FLAGS = frozenset(
    f"--{name}" for name in ("dialect", "map", "encoding", "root", "strict", "deep", "format", "json", "output", "help")
)
_NAME, _FLAG, _SUFFIX = (
    lazy_pattern(r"[a-z][a-z0-9-]*"),
    lazy_pattern(r"--[a-z][a-z0-9-]*"),
    lazy_pattern(r"(\.[a-z0-9]+)+"),
)
Given = TypeVar("Given")


def load_packages(systems: Iterable[System]) -> Catalog:
    """The catalog of these systems and those of other packages; one that cannot be let in is a failure."""
    found, failures = list(systems), []
    try:
        points = list(_entry_points())
    except Exception as error:  # the files of another package may hold anything
        failures.append(Failure(GROUP, f"entry points cannot be read: {type(error).__name__}: {error}"))
        points = []
    for point in points:
        try:
            found.append(_load(point, Catalog(found)))
        except (Exception, SystemExit) as error:  # code of another package: whatever it does must not stop evalloom
            failures.append(Failure(point.name, f"{_package(point)}: {type(error).__name__}: {error}"))
    return Catalog(found, failures)


def package_in(trace: TracebackType | None, catalog: Catalog) -> str:
    """The package of another system whose code an error went through; empty where it went through ours alone."""
    from traceback import walk_tb

    owners = {system.module: system.package for system in catalog.systems if system.package}
    modules = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(trace))
    return next((owners[module] for module in modules if module in owners), "")


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
    return any(_mentions_group(os.path.join(info, "entry_points.txt")) for info in infos)


def _mentions_group(file: str) -> bool:
    try:
        with open(file, "rb") as stream:
            return GROUP.encode() in stream.read()
    except OSError:
        return False


def _load(point: EntryPoint, known: Catalog) -> System:
    system = point.load()
    if not isinstance(system, System):
        raise TypeError(f"{point.value}: expected a System, got {type(system).__name__}")
    parts = system.parts()
    for problem in _problems(system, parts, known):
        raise ValueError(problem)
    package = _package(point)
    from msgspec import structs

    guarded = structs.replace(
        parts,
        dialects=tuple(_guarded_dialect(dialect, package) for dialect in parts.dialects),
        documents=tuple(_guarded_document(document, package) for document in parts.documents),
    )
    module = point.module.partition(".")[0]
    return System(system.name, system.title, lambda: guarded, system.commands, package, module)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _problems(system: System, parts: Parts, known: Catalog) -> Iterator[str]:
    """What keeps a system out: a name that is taken, or one that nobody could type."""
    from evalloom.settings.file import ENGINE_KEYS

    names: list[tuple[str, set[str], list[str], re.Pattern[str]]] = [
        ("system", {one.name for one in known.systems}, [system.name], _NAME),
        ("dialect", {one.name for one in known.formats.dialects}, [one.name for one in parts.dialects], _NAME),
        ("target", {one.name for one in known.all_targets}, [one.name for one in parts.targets], _NAME),
        ("check", {*known.matchers.kinds}, [one.kind for one in parts.matchers], re.compile(r"[a-z]\w*")),
        ("reporter", {one.suffix for one in known.reporters}, [one.suffix for one in parts.reporters], _SUFFIX),
        ("command", {*COMMANDS, *(one.name for one in known.commands)}, [one.name for one in system.commands], _NAME),
        (
            "flag of validate",
            {*VALIDATE_FLAGS, *(one.name for one in known.rule_flags)},
            [one.name for one in parts.rule_flags],
            _FLAG,
        ),
        (
            "section of evalloom.yaml",
            {*ENGINE_KEYS, *(one.name for one in known.sections)},
            [one.name for one in parts.sections()],
            re.compile(r"[a-z]\w*"),
        ),
        ("kind of batch", {*known.batch_kinds}, [one.name for one in parts.batch_kinds()], re.compile(r"\w[\w-]*")),
    ]
    for kind, taken, theirs, form in names:
        for number, name in enumerate(theirs):
            if not isinstance(name, str) or not form.fullmatch(name):
                yield f"{kind}: expected a name like {form.pattern}, got {name!r}"
            elif name in taken or name in theirs[:number]:
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
    """A dialect whose questions to files of all kinds cannot break the reading of others."""
    from msgspec import structs

    return structs.replace(
        dialect,
        sniff=_guarded(dialect.sniff, package, ""),
        weaker=tuple((rank, _guarded(sniff, package, "")) for rank, sniff in dialect.weaker),
        expand=_guarded(dialect.expand, package, None),
        mapping_from=_guarded(dialect.mapping_from, package, ""),
        forget=_guarded(dialect.forget, package, None),
    )


def _guarded_document(document: Document, package: str) -> Document:
    from msgspec import structs

    return structs.replace(document, matches=_guarded(document.matches, package, False))


def _guarded(function: Callable[..., Given], package: str, default: Given) -> Callable[..., Given]:
    """A function of another package: an error in it is a warning, and the default its answer."""

    @wraps(function)
    def call(*args: Any) -> Given:
        try:
            return function(*args)
        except Exception as error:
            import warnings

            name = getattr(function, "__qualname__", "a function")
            warnings.warn(f"{package}: {name} fails: {type(error).__name__}: {error} [system_failed]", stacklevel=2)
            return default

    return call
