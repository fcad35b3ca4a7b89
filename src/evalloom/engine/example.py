"""A bundled example: the folder under `examples/` that shows a system, and what is expected of it in the demo."""

from __future__ import annotations

from msgspec import Struct

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


class ExampleFile(Struct, frozen=True):
    """One bundled file: the dialect it should be recognised as, and what it is checked against."""

    file: str
    dialect: str
    root: str = ""
    is_faulty: bool = False


class Example(Struct, frozen=True):
    """What the demo shows of one system."""

    suites: tuple[Suite, ...] = ()
    files: tuple[ExampleFile, ...] = ()
