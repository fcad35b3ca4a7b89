"""What a system is: one value that names everything it adds to evalloom; and the catalog that collects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.data.dialect import Dialect
from evalloom.engine.batch_kind import BatchKind
from evalloom.engine.example import Example
from evalloom.matchers import Matcher
from evalloom.settings.section import Section
from evalloom.targets.base import Kind

if TYPE_CHECKING:
    import click

    from evalloom.engine.init import Starter
    from evalloom.reports import RunReporter


class Command(Struct, frozen=True):
    """One command of the command line; `load` imports it when it is called."""

    name: str
    summary: str
    load: Callable[[], click.Command]


class System(Struct, frozen=True):
    """One system: what it reads, tests, scores, writes and shows. What it does not have stays empty.

    What takes long to import (targets, reporters, commands, starters) is named here and imported when it is used.
    """

    name: str
    title: str
    dialects: tuple[Dialect, ...] = ()
    targets: tuple[Kind, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    reporters: tuple[RunReporter, ...] = ()
    """Those of results, for `-o`."""
    commands: tuple[Command, ...] = ()
    sections: tuple[Section[Any], ...] = ()
    """Its sections of evalloom.yaml."""
    batch_kinds: tuple[BatchKind, ...] = ()
    buckets: tuple[str, ...] = ()
    """Tags that part its cases into groups, of which each case is in one at most; in the order they are shown."""
    starter: Callable[[], Starter] | None = None
    """The suite that `evalloom init` writes for its first dialect."""
    example: Example = Example()


class Catalog(Struct, frozen=True):
    """All systems, and with them everything that the engine is asked to know."""

    systems: tuple[System, ...] = ()

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        return tuple(dialect for system in self.systems for dialect in system.dialects)

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        return tuple(section for system in self.systems for section in system.sections)

    @property
    def starters(self) -> dict[str, Callable[[], Starter]]:
        """The suites of `evalloom init`, by the dialect of their dataset."""
        return {system.dialects[0].name: system.starter for system in self.systems if system.starter is not None}

    @property
    def buckets(self) -> tuple[str, ...]:
        return tuple(bucket for system in self.systems for bucket in system.buckets)

    def batch_kind(self, config: Record) -> BatchKind | None:
        """The kind of a batch by its configuration; None for a batch like any other."""
        return next((kind for kind in self._batch_kinds() if kind.name == config.get("kind")), None)

    def _batch_kinds(self) -> Iterable[BatchKind]:
        return (kind for system in self.systems for kind in system.batch_kinds)
