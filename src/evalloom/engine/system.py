"""A system: one value that names everything it adds to evalloom; and the catalog that collects systems.

Every start imports this module and the `system.py` of each system, so none of them imports anything that takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from evalloom.core.lazy import lazy_names

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from evalloom.batchlog.copy import Source
    from evalloom.core.model import Batch, Record
    from evalloom.data.formats import Formats
    from evalloom.engine.batch_kind import BatchKind
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.parts import Parts as Parts
    from evalloom.engine.parts import RuleFlag as RuleFlag
    from evalloom.engine.suite import Suite, SuiteOptions
    from evalloom.matchers import Matchers
    from evalloom.pages.page import Section as PageSection
    from evalloom.reports import RunReporter
    from evalloom.reports.exporters import Exporter
    from evalloom.settings.section import Section
    from evalloom.targets.base import Kind

Part = TypeVar("Part")
COMMANDS = (
    *("run", "score", "compare", "history", "report", "baseline", "batches", "stats", "sql", "view", "serve"),
    *("export", "validate", "convert", "inspect", "schema", "demo", "init", "doctor"),
)
"""The commands of the engine, whose names no system may take."""


# Plain classes: creating a NamedTuple takes 3 million instructions, a tenth of the start of Python.


class Command:
    """One command of the command line; `load` imports it when it is called."""

    def __init__(self, name: str, summary: str, load: Callable[[], click.Command]) -> None:
        self.name = name
        self.summary = summary
        self.load = load


def no_parts() -> Parts:
    """The parts of a system that only adds commands."""
    from evalloom.engine.parts import Parts

    return Parts()


class System:
    """One system. Its commands are known at once; `parts` is called when another part is first used."""

    def __init__(
        self,
        name: str,
        title: str,
        parts: Callable[[], Parts] = no_parts,
        commands: tuple[Command, ...] = (),
        package: str = "",
        module: str = "",
    ) -> None:
        """`package` and `module` name the package that it comes from; both are empty for those of evalloom."""
        self.name = name
        self.title = title
        self.parts = parts
        self.commands = commands
        self.package = package
        self.module = module


class Failure:
    """A system of another package that could not be loaded."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason


class Catalog:
    """All systems and their parts; the engine gets it as an argument."""

    def __init__(self, systems: Iterable[System] = (), failures: Iterable[Failure] = ()) -> None:
        self.systems = tuple(systems)
        self.failures = tuple(failures)
        """Systems of other packages that are left out."""

    @cached_property
    def formats(self) -> Formats:
        from evalloom.data.formats import Formats
        from evalloom.engine.check_rules import check_rules

        return Formats(
            self._all(lambda parts: parts.dialects),
            self._all(lambda parts: parts.documents),
            check_rules(self.matchers),
        )

    @cached_property
    def targets(self) -> tuple[Kind, ...]:
        """The kinds of targets that systems add to those of the engine."""
        return self._all(lambda parts: parts.targets)

    @cached_property
    def all_targets(self) -> tuple[Kind, ...]:
        from evalloom.targets import TARGETS

        return (*TARGETS, *self.targets)

    @cached_property
    def matchers(self) -> Matchers:
        from evalloom.matchers import Matchers

        return Matchers(self._all(lambda parts: parts.matchers))

    @cached_property
    def reporters(self) -> tuple[RunReporter, ...]:
        from evalloom.reports import RUN_REPORTERS

        return (*RUN_REPORTERS, *self._all(lambda parts: parts.reporters))

    @cached_property
    def exporters(self) -> tuple[Exporter, ...]:
        from evalloom.reports.exporters import EXPORTERS

        return (*self._all(lambda parts: parts.exporters), *EXPORTERS)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for system in self.systems for command in system.commands)

    @cached_property
    def rule_flags(self) -> tuple[RuleFlag, ...]:
        return self._all(lambda parts: parts.rule_flags)

    @cached_property
    def sections(self) -> tuple[Section[Any], ...]:
        return self._all(lambda parts: parts.sections())

    @cached_property
    def starters(self) -> dict[str, Callable[[], Starter]]:
        """The suites of `evalloom init`, by the dialect of their dataset."""
        return {parts.dialects[0].name: parts.starter for parts in self.parts if parts.starter is not None}

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """What the demo shows, system by system."""
        return tuple(parts.example() for parts in self.parts if parts.example is not None)

    @cached_property
    def pages(self) -> tuple[PageSection, ...]:
        """The pages of the systems."""
        return tuple(parts.pages() for parts in self.parts if parts.pages is not None)

    @cached_property
    def buckets(self) -> tuple[str, ...]:
        return self._all(lambda parts: parts.buckets)

    @cached_property
    def own_files(self) -> tuple[str, ...]:
        return self._all(lambda parts: parts.own_files)

    def batch_kind(self, config: Record) -> BatchKind | None:
        """The kind of a batch by its configuration; None for a batch like any other."""
        return self.batch_kinds.get(str(config.get("kind")))

    def system_of(self, batch: Batch) -> str:
        """The system of a batch, by its kind or by the dialect of its first dataset; empty if no system knows it."""
        kind = str(batch.config.get("kind"))
        dialect = batch.datasets[0].dialect.partition(":")[0] if batch.datasets else ""
        for system, parts in zip(self.systems, self.parts, strict=True):
            if any(own.name == kind for own in parts.batch_kinds()):
                return system.name
        for system, parts in zip(self.systems, self.parts, strict=True):
            if any(own.name == dialect for own in parts.dialects):
                return system.name
        return ""

    @cached_property
    def result_commands(self) -> tuple[click.Command, ...]:
        """The commands of systems that summarize results in their own format."""
        return tuple(parts.result_command() for parts in self.parts if parts.result_command is not None)

    def suite(self, path: Path, options: SuiteOptions) -> Suite | None:
        """What a test file says of its target; None if it says nothing."""
        for parts in self.parts:
            if parts.suite is not None and (suite := parts.suite(path, options)) is not None:
                return suite
        return None

    def result_sources(self, path: Path) -> list[Source] | None:
        """The results in a file or folder of a system's own format; None if no system reads it."""
        for parts in self.parts:
            if parts.results is not None and (sources := parts.results(path)) is not None:
                return sources
        return None

    @cached_property
    def batch_kinds(self) -> dict[str, BatchKind]:
        return {kind.name: kind for kind in self._all(lambda parts: parts.batch_kinds())}

    @cached_property
    def parts(self) -> tuple[Parts, ...]:
        """The parts of each system."""
        return tuple(system.parts() for system in self.systems)

    def _all(self, of: Callable[[Parts], tuple[Part, ...]]) -> tuple[Part, ...]:
        return tuple(part for parts in self.parts for part in of(parts))


__getattr__ = lazy_names(__name__, {"evalloom.engine.parts": ("Parts", "RuleFlag")})
