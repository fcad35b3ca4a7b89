"""What a system is: one value that names everything it adds to evalloom; and the catalog that collects them.

Every start imports this module and the `system.py` of each system, so none of them imports anything that takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import click

    from evalloom.core.model import Record
    from evalloom.data.dialect import Dialect, Rules
    from evalloom.data.formats import Document, Formats
    from evalloom.engine.batch_kind import BatchKind
    from evalloom.engine.example import Example
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


class Command(NamedTuple):
    """One command of the command line; `load` imports it when it is called."""

    name: str
    summary: str
    load: Callable[[], click.Command]


class RuleFlag(NamedTuple):
    """A flag of `evalloom validate` that asks for more than the format does; `apply` puts its value into the rules."""

    name: str
    help: str
    apply: Callable[[Rules, str], Rules]
    metavar: str = ""
    """What its value is called; empty for a flag without a value, which is applied with an empty one."""


class Parts(NamedTuple):
    """What a system reads, tests, scores, writes and shows; what it does not have stays empty.

    Targets, reporters and starters take long to import: they are named here, and imported when they are used.
    """

    dialects: tuple[Dialect, ...] = ()
    documents: tuple[Document, ...] = ()
    targets: tuple[Kind, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    reporters: tuple[RunReporter, ...] = ()
    """Those of results, for `-o`."""
    rule_flags: tuple[RuleFlag, ...] = ()
    sections: Callable[[], tuple[Section[Any], ...]] = tuple
    """Its sections of evalloom.yaml."""
    batch_kinds: Callable[[], tuple[BatchKind, ...]] = tuple
    buckets: tuple[str, ...] = ()
    """Tags that part its cases into groups, of which each case is in one at most; in the order they are shown."""
    own_files: tuple[str, ...] = ()
    """Names of files that it keeps beside datasets, and that hold no cases."""
    starter: Callable[[], Starter] | None = None
    """The suite that `evalloom init` writes for its first dialect."""
    example: Callable[[], Example] | None = None
    """What `evalloom demo` shows of it."""


class System(NamedTuple):
    """One system. Its commands are known at once, its other parts when the first of them is asked for."""

    name: str
    title: str
    parts: Callable[[], Parts] = Parts
    commands: tuple[Command, ...] = ()
    package: str = ""
    """The package that it comes from, with its version; empty for those that come with evalloom."""
    module: str = ""
    """The top-level module of that package."""


class Failure(NamedTuple):
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

        return Formats(self._all(lambda parts: parts.dialects), self._all(lambda parts: parts.documents))

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
    def buckets(self) -> tuple[str, ...]:
        return self._all(lambda parts: parts.buckets)

    @cached_property
    def own_files(self) -> tuple[str, ...]:
        return self._all(lambda parts: parts.own_files)

    def batch_kind(self, config: Record) -> BatchKind | None:
        """The kind of a batch by its configuration; None for a batch like any other."""
        return self.batch_kinds.get(str(config.get("kind")))

    @cached_property
    def batch_kinds(self) -> dict[str, BatchKind]:
        return {kind.name: kind for kind in self._all(lambda parts: parts.batch_kinds())}

    @cached_property
    def parts(self) -> tuple[Parts, ...]:
        """The parts of each system."""
        return tuple(system.parts() for system in self.systems)

    def _all(self, of: Callable[[Parts], tuple[Part, ...]]) -> tuple[Part, ...]:
        return tuple(part for parts in self.parts for part in of(parts))
