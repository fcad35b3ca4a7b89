"""What the demo shows of a system: suites to run, files to check, and a part of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.data.dialect import Rules

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog


class ExampleFile(Struct, frozen=True):
    """One bundled file: the dialect it should be recognised as, and what it is checked against."""

    file: str
    dialect: str
    rules: Callable[[Path], Rules] = lambda examples: Rules(root=examples)
    """The rules of the check, given the folder of examples."""
    is_faulty: bool = False
    """Whether the file has errors on purpose, to show findings; any other file has none."""


class DemoPartResult(Struct, frozen=True):
    """The outcome of a part, for the terminal and the reports."""

    as_expected: bool
    """Whether the part ran without a problem; cases may fail on purpose."""
    sentence: str
    entry: Record
    """Its entry in the JSON report."""
    details: tuple[str, ...] = ()
    """Lines below the sentence: what failed, on purpose."""
    commands: tuple[str, ...] = ()
    """Commands that show more of it, without `evalloom`."""


class DemoPart(Struct, frozen=True):
    """What one system adds to the demo, beyond running, checking and converting cases."""

    title: str
    """Its heading in the Markdown report."""
    heading: str
    """Its heading in the terminal, where there is more room to explain."""
    key: str
    """Its list in the JSON report."""
    run: Callable[[Catalog, Path, Path], DemoPartResult]
    """Runs it, given the folder of examples and the one that batches and stores go under."""


class Example(Struct, frozen=True):
    """What the demo shows of one system; all paths are relative to the folder of examples."""

    suites: tuple[str, ...] = ()
    """Folders with an evalloom.yaml that is run."""
    files: tuple[ExampleFile, ...] = ()
    """The first file of a dialect is also converted to the other formats."""
    parts: tuple[DemoPart, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands to try next, without `evalloom`; `{examples}` stands for the folder of examples."""
    may_be_incomplete: bool = False
    """Whether its cases need fields that those of other formats lack, so that converted ones have errors."""
