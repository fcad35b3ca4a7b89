"""What a system is: one value that names everything it adds to evalloom; and the catalog that collects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from evalloom.engine.example import Example

# Most commands need few of these, so that those which take long are imported when somebody asks for them.
if TYPE_CHECKING:
    import click

    from evalloom.core.model import Record
    from evalloom.data.dialect import Dialect, Rules
    from evalloom.data.formats import Document, Formats
    from evalloom.engine.batch_kind import BatchKind
    from evalloom.engine.init import Starter
    from evalloom.matchers import Matcher, Matchers
    from evalloom.reports import RunReporter
    from evalloom.settings.section import Section
    from evalloom.targets.base import Kind

Part = TypeVar("Part")
COMMANDS = (
    *("run", "score", "compare", "baseline", "batches"),
    *("validate", "convert", "inspect", "schema", "demo", "init", "doctor"),
)
"""The commands of the engine, whose names no system may take."""


class Command(Struct, frozen=True):
    """One command of the command line; `load` imports it when it is called."""

    name: str
    summary: str
    load: Callable[[], click.Command]


class RuleFlag(Struct, frozen=True):
    """A flag of `evalloom validate` that asks for more than the format does; `apply` puts its value into the rules."""

    name: str
    help: str
    apply: Callable[[Rules, str], Rules]
    metavar: str = ""
    """What its value is called; empty for a flag without a value, which is applied with an empty one."""


class System(Struct, frozen=True):
    """One system: what it reads, tests, scores, writes and shows. What it does not have stays empty.

    What takes long to import (targets, reporters, commands, starters) is named here and imported when it is used.
    """

    name: str
    title: str
    dialects: tuple[Dialect, ...] = ()
    documents: tuple[Document, ...] = ()
    targets: tuple[Kind, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    reporters: tuple[RunReporter, ...] = ()
    """Those of results, for `-o`."""
    commands: tuple[Command, ...] = ()
    rule_flags: tuple[RuleFlag, ...] = ()
    sections: tuple[Section[Any], ...] = ()
    """Its sections of evalloom.yaml."""
    batch_kinds: tuple[BatchKind, ...] = ()
    buckets: tuple[str, ...] = ()
    """Tags that part its cases into groups, of which each case is in one at most; in the order they are shown."""
    own_files: tuple[str, ...] = ()
    """Names of files that it keeps beside datasets, and that hold no cases."""
    starter: Callable[[], Starter] | None = None
    """The suite that `evalloom init` writes for its first dialect."""
    example: Example = Example()
    package: str = ""
    """The package that it comes from, with its version; empty for those that come with evalloom."""
    module: str = ""
    """The top-level module of that package."""


class Failure(Struct, frozen=True):
    """A system of another package that could not be loaded, and why."""

    name: str
    reason: str


class Catalog:
    """All systems, and with them everything that the engine is asked to know."""

    def __init__(self, systems: Iterable[System] = (), failures: Iterable[Failure] = ()) -> None:
        self.systems = tuple(systems)
        self.failures = tuple(failures)
        """Systems of other packages that are left out."""

    @cached_property
    def formats(self) -> Formats:
        from evalloom.data.formats import Formats

        return Formats(self._all(lambda system: system.dialects), self._all(lambda system: system.documents))

    @cached_property
    def targets(self) -> tuple[Kind, ...]:
        """The kinds of targets that systems add to those of the engine."""
        return self._all(lambda system: system.targets)

    @cached_property
    def all_targets(self) -> tuple[Kind, ...]:
        from evalloom.targets import TARGETS

        return (*TARGETS, *self.targets)

    @cached_property
    def matchers(self) -> Matchers:
        from evalloom.matchers import Matchers

        return Matchers(self._all(lambda system: system.matchers))

    @cached_property
    def reporters(self) -> tuple[RunReporter, ...]:
        from evalloom.reports import RUN_REPORTERS

        return (*RUN_REPORTERS, *self._all(lambda system: system.reporters))

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        return self._all(lambda system: system.commands)

    @cached_property
    def rule_flags(self) -> tuple[RuleFlag, ...]:
        return self._all(lambda system: system.rule_flags)

    @cached_property
    def sections(self) -> tuple[Section[Any], ...]:
        return self._all(lambda system: system.sections)

    @cached_property
    def starters(self) -> dict[str, Callable[[], Starter]]:
        """The suites of `evalloom init`, by the dialect of their dataset."""
        return {system.dialects[0].name: system.starter for system in self.systems if system.starter is not None}

    @cached_property
    def buckets(self) -> tuple[str, ...]:
        return self._all(lambda system: system.buckets)

    @cached_property
    def own_files(self) -> tuple[str, ...]:
        return self._all(lambda system: system.own_files)

    def batch_kind(self, config: Record) -> BatchKind | None:
        """The kind of a batch by its configuration; None for a batch like any other."""
        return self.batch_kinds.get(str(config.get("kind")))

    @cached_property
    def batch_kinds(self) -> dict[str, BatchKind]:
        return {kind.name: kind for kind in self._all(lambda system: system.batch_kinds)}

    def _all(self, parts: Callable[[System], tuple[Part, ...]]) -> tuple[Part, ...]:
        return tuple(part for system in self.systems for part in parts(system))
