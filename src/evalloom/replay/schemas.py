"""What those who ask for projects, datasets and replays must say, and the words for what is wrong with it."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from evalloom.core.model import Record, quote, type_name
from evalloom.replay.recipe.assemble import Recipe
from evalloom.replay.recipe.parse import RecipeFault, read_recipe

DEFAULT_LIMIT = 20
MOST_AT_ONCE = 200
"""How many rows one answer replays; a stream goes through as many as there are."""
MOST_ROWS = 200_000
MOST_IN_LIST = 10_000
LONGEST_NAME = 500
_PAST_EVERYTHING = 10**15
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_FAULTS = 50


class Fault(Exception):
    """What was asked for cannot be done: a code, what to do about it, and where it is."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Record = details


class ReplayAsked(Struct, frozen=True):
    """A replay as it was asked for; without a limit it goes to the end."""

    project_id: str
    limit: int | None = DEFAULT_LIMIT
    offset: int = 0
    profile: str = ""


def checked_id(id: str, kind: str) -> str:
    """An id that may be looked up. What cannot be one is as unknown as any other."""
    if not _ID.fullmatch(id):
        raise not_found(kind, id)
    return id


def not_found(kind: str, id: str) -> Fault:
    return Fault(f"{kind}_not_found", f"there is no {kind} {quote(id)}")


def read_project(body: Any) -> tuple[str, Record, Recipe]:
    """Name, state and recipe of `{name, state}`."""
    faults = _Faults(body, "a project with name and state")
    name = faults.name("name")
    state = faults.given("state")
    try:
        found = read_recipe(state)
    except RecipeFault as fault:
        if fault.code != "validation_failed":
            raise Fault(fault.code, f"{fault}") from None
        is_there = "state" in faults.body
        faults.found += fault.faults if is_there else [("state", "expected an object, got none")]
    faults.refuse()
    return name, state, found


def read_dataset(body: Any) -> tuple[str, list[Record]]:
    """Name and rows of `{name, rows}`; a row that is no object is refused with its index (REPLAY-14)."""
    faults = _Faults(body, "a dataset with name and rows")
    name = faults.name("name")
    rows = faults.given("rows")
    if not isinstance(rows, list):
        faults.expect("rows", "a list of objects", rows)
    faults.refuse()
    if len(rows) > MOST_ROWS:
        raise Fault("limit_exceeded", f"rows: expected at most {MOST_ROWS:,}, got {len(rows):,}", limit=MOST_ROWS)
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise Fault("row_invalid", f"rows[{index}]: expected an object, got {_got(row)}", index=index)
    return name, rows


def read_replay(body: Any, is_streamed: bool = False) -> ReplayAsked:
    """What `{projectId, limit?, offset?, profile?}` asks for (REPLAY-12)."""
    faults = _Faults(body, "an object with projectId")
    project_id = faults.name("projectId")
    limit = faults.whole("limit", 1) if "limit" in faults.body else None if is_streamed else DEFAULT_LIMIT
    offset = faults.whole("offset", 0) if "offset" in faults.body else 0
    profile = faults.name("profile") if "profile" in faults.body else ""
    faults.refuse()
    most = MOST_ROWS if is_streamed else MOST_AT_ONCE
    if limit is not None and limit > most:
        more = "" if is_streamed else ". Use offset, or ?stream=true"
        raise Fault("limit_exceeded", f"limit: expected at most {most:,}, got {limit:,}{more}", limit=most)
    return ReplayAsked(project_id, limit, offset, profile)


def read_execution(body: Any) -> tuple[str, Any, Any, str]:
    """Project id, state, row and profile of `{projectId | state, row?, profile?}`."""
    faults = _Faults(body, "an object with projectId or state")
    if ("projectId" in faults.body) == ("state" in faults.body):
        faults.found.append(("projectId", "expected either projectId or state"))
    project_id = faults.name("projectId") if "projectId" in faults.body else ""
    profile = faults.name("profile") if "profile" in faults.body else ""
    faults.refuse()
    return project_id, faults.body.get("state"), faults.body.get("row", {}), profile


def page(limit: int, offset: int) -> tuple[int, int]:
    """A page that can be asked for. One that is none, or larger than anybody reads, is refused."""
    if limit < 1 or offset < 0:
        raise Fault(
            "validation_failed", f"expected a limit of 1 or more and an offset of 0 or more, got {limit}, {offset}"
        )
    if limit > MOST_IN_LIST:
        message = f"limit: expected at most {MOST_IN_LIST:,}, got {limit:,}"
        raise Fault("limit_exceeded", message, limit=MOST_IN_LIST)
    # Past the end is past the end, and SQLite counts to 2**63.
    return limit, min(offset, _PAST_EVERYTHING)


def refuse(found: list[tuple[str, str]]) -> Fault:
    """The fault for everything that is wrong with a body."""
    shown = [{"path": path, "message": message} for path, message in found[:_MOST_FAULTS]]
    path, message = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Fault("validation_failed", f"{path}: {message}{more}" if path else message, faults=shown)


class _Faults:
    """A body, and all that is wrong with it."""

    def __init__(self, body: Any, expected: str) -> None:
        self.found: list[tuple[str, str]] = []
        if not isinstance(body, dict):
            raise refuse([("", f"expected {expected}, got {_got(body)}")])
        self.body: Record = body

    def given(self, name: str) -> Any:
        return self.body.get(name)

    def name(self, name: str) -> str:
        """A text that is not blank."""
        value = self.body.get(name)
        if isinstance(value, str) and value.strip() and len(value) <= LONGEST_NAME:
            return value
        if isinstance(value, str) and value.strip():
            self.found.append((name, f"expected at most {LONGEST_NAME} characters, got {len(value):,}"))
        else:
            self.expect(name, "a text that is not blank", value)
        return ""

    def whole(self, name: str, least: int) -> int:
        """A whole number; true is none."""
        value = self.body.get(name)
        if type(value) is int and value >= least:
            return value
        self.expect(name, f"a whole number from {least} up", value)
        return least

    def expect(self, name: str, expected: str, value: Any) -> None:
        got = _got(value) if name in self.body else "none"
        self.found.append((name, f"expected {expected}, got {got}"))

    def refuse(self) -> None:
        if self.found:
            raise refuse(self.found)


def _got(value: object) -> str:
    # A bool is a number to Python, and a number of a million digits is no help to anybody.
    is_short = isinstance(value, str | float) or (type(value) is int and abs(value) < 10**18)
    return quote(value) if is_short else type_name(value)
