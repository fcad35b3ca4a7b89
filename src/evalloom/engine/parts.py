"""The parts that a system adds to evalloom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from evalloom.batchlog.copy import Source
    from evalloom.data.dialect import Dialect, Rules
    from evalloom.data.formats import Document
    from evalloom.engine.batch_kind import BatchKind
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.suite import Suite, SuiteOptions
    from evalloom.matchers import Matcher
    from evalloom.pages.page import Section as PageSection
    from evalloom.reports import RunReporter
    from evalloom.reports.exporters import Exporter
    from evalloom.settings.section import Section
    from evalloom.targets.base import Kind


class RuleFlag(Struct, frozen=True):
    """A flag of `evalloom validate` for a further rule; `apply` sets it in the rules."""

    name: str
    help: str
    apply: Callable[[Rules, str], Rules]
    metavar: str = ""
    """The name of its value; empty for a flag without a value, which is applied with an empty one."""


class Parts(Struct, frozen=True):
    """What a system reads, tests, scores, writes and shows. Every field is optional.

    What is slow to import is a function here, or has one, and is imported when it is used.
    """

    dialects: tuple[Dialect, ...] = ()
    documents: tuple[Document, ...] = ()
    targets: tuple[Kind, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    reporters: tuple[RunReporter, ...] = ()
    """Reporters of results, for `-o`."""
    exporters: tuple[Exporter, ...] = ()
    """Result formats of other tools, for `evalloom export`."""
    rule_flags: tuple[RuleFlag, ...] = ()
    sections: Callable[[], tuple[Section[Any], ...]] = tuple
    """Its sections of evalloom.yaml."""
    suite: Callable[[Path, SuiteOptions], Suite | None] | None = None
    """Reads a test file that also says what it tests; returns None for any other file."""
    batch_kinds: Callable[[], tuple[BatchKind, ...]] = tuple
    buckets: tuple[str, ...] = ()
    """Tags that divide its cases into groups, each case in at most one; in the order of display."""
    own_files: tuple[str, ...] = ()
    """Names of files that it writes beside datasets, and that hold no cases."""
    results: Callable[[Path], list[Source] | None] | None = None
    """Reads files of results in its own format for queries; returns None for a path that has none."""
    result_command: Callable[[], click.Command] | None = None
    """Its own form of `evalloom stats` for such files: the argument `folder`, and options."""
    pages: Callable[[], PageSection] | None = None
    """Its pages in the browser."""
    starter: Callable[[], Starter] | None = None
    """The suite that `evalloom init` writes for its first dialect."""
    example: Callable[[], Example] | None = None
    """What `evalloom demo` shows of it."""
