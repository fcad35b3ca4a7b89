"""What the demo shows of a system: suites to run, files to check, and a part of its own; with what is expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.data.dialect import Rules

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

COUNTED = ("passed", "failed", "error", "unscored")
"""How a run of an example may end."""


class Suite(Struct, frozen=True):
    """A folder of examples that is run as its evalloom.yaml says, and how its runs should end."""

    folder: str
    passed: int
    failed: int
    error: int = 0
    unscored: int = 0

    @property
    def expected(self) -> dict[str, int]:
        return {status: getattr(self, status) for status in COUNTED}


def _no_more_rules(examples: Path) -> Rules:
    return Rules(root=examples)


class ExampleFile(Struct, frozen=True):
    """One bundled file: the dialect it should be recognised as, and what it is checked against."""

    file: str
    dialect: str
    rules: Callable[[Path], Rules] = _no_more_rules
    """The rules of the check, given the folder of examples."""
    faults: tuple[str, ...] = ()
    """The codes that a file with faults on purpose shows; any other file has no error."""


class PartResult(Struct, frozen=True):
    """The outcome of a part: what the terminal and the reports say about it."""

    as_expected: bool
    sentence: str
    entry: Record
    """Its entry in the JSON report."""
    details: tuple[str, ...] = ()
    """Lines below the sentence: what failed, on purpose."""
    commands: tuple[str, ...] = ()
    """What to type after `evalloom` to see more of it."""


class Part(Struct, frozen=True):
    """A part of the demo that one system adds: what it does beyond running, checking and converting cases."""

    title: str
    """Its heading in the Markdown report."""
    heading: str
    """Its heading in the terminal, where there is more room to explain."""
    key: str
    """Its list in the JSON report."""
    run: Callable[[Catalog, Path, Path], PartResult]
    """Runs it, given the folder of examples and the one that batches and stores go under."""


class Example(Struct, frozen=True):
    """What the demo shows of one system; all paths are relative to the folder of examples."""

    suites: tuple[Suite, ...] = ()
    files: tuple[ExampleFile, ...] = ()
    """The first file of a dialect is also converted to the other formats."""
    parts: tuple[Part, ...] = ()
    commands: tuple[str, ...] = ()
    """What to type next after `evalloom`; `{examples}` stands for the folder of examples."""
    may_be_incomplete: bool = False
    """Whether its cases need fields that those of other formats lack, so that converted ones have errors."""
