"""The nouns: frozen, typed, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

Record = dict[str, Any]
"""One JSON object as a user wrote it."""

Path = tuple[str | int, ...]
"""Where something stands inside a record: `("expected_sources", 1)`."""

Severity = Literal["error", "warning", "info"]


class Place(NamedTuple):
    """A position in a file, counted from 1; line 0 means the file as a whole."""

    line: int = 0
    column: int = 0


class Origin(Struct, frozen=True):
    """The place a case came from, so that every message can point at it."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class Remark(NamedTuple):
    """What a dialect says about one record; a finding once we know where the record stands."""

    code: str
    severity: Severity
    path: Path
    message: str


class Finding(Struct, frozen=True):
    """One remark of the linter about the user's data, at its place."""

    code: str
    severity: Severity
    message: str
    origin: Origin
    field: str = ""
    case_id: str = ""

    def __str__(self) -> str:
        word = "" if self.severity == "error" else f"{self.severity}: "
        return f"{self.origin}: {word}{self.message} [{self.code}]"


class Checked(Struct, frozen=True):
    """What the linter has to say about one source; `counts` is exact, `findings` the first thousand of each code."""

    file: str
    dialect: str
    reason: str
    lines: int
    cases: int
    findings: list[Finding]
    counts: dict[tuple[str, Severity], int]

    def count(self, severity: Severity) -> int:
        return sum(number for (_, found), number in self.counts.items() if found == severity)


class Check(Struct, frozen=True):
    """One expectation: how to compare (`kind`), with what (`expected`), and `where` in the output."""

    kind: str
    expected: Any = None
    where: str = "output"
    name: str = ""
    options: Mapping[str, Any] = {}


class Case(Struct, frozen=True):
    """One test: what goes in, what is expected, and the record it was read from."""

    id: str
    inputs: Record
    checks: tuple[Check, ...] = ()
    tags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    meta: Record = {}
    raw: Record = {}
    origin: Origin = Origin("")


def error(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "error", path, message)


def warning(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "warning", path, message)


def info(code: str, path: Path, message: str) -> Remark:
    return Remark(code, "info", path, message)


def show_path(path: Path) -> str:
    """`("batch_items", 0, "text")` as a user would write it: `batch_items[0].text`."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += f".{step}" if shown else step
    return shown


def type_name(value: object) -> str:
    """The JSON name of a value's type, as messages say it."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def quote(value: object, limit: int = 60) -> str:
    """A value for a message: its repr, cut when long, with nothing that could drive a terminal."""
    if isinstance(value, str) and len(value) > limit:
        return repr(value[: limit - 1] + "…")
    shown = repr(value)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
