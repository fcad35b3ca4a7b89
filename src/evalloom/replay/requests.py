"""Validates requests for projects, datasets and replays."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import describe, quote
from evalloom.pages.errors import RequestError
from evalloom.replay.recipe.assemble import Recipe
from evalloom.replay.recipe.parse import RecipeError, read_recipe

DEFAULT_LIMIT = 20
MOST_AT_ONCE = 200
"""Rows per response; a stream has no such limit."""
MOST_ROWS = 200_000
MOST_IN_LIST = 10_000
LONGEST_NAME = 500
_MAX_OFFSET = 10**15
_ID = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_MAX_ERRORS = 50


class ReplayRequest(Struct, frozen=True):
    """The parameters of a replay; without a limit it continues to the end."""

    project_id: str
    limit: int | None = DEFAULT_LIMIT
    offset: int = 0
    profile: str = ""


def check_id(id: str, kind: str) -> str:
    """Return a well-formed id; raise a not-found error for any other."""
    if not _ID.fullmatch(id):
        raise not_found(kind, id)
    return id


def not_found(kind: str, id: str) -> RequestError:
    """Return the error of an unknown id."""
    return RequestError(f"{kind}_not_found", f"there is no {kind} {quote(id)}")


def read_project(body: Any) -> tuple[str, Record, Recipe]:
    """Parse `{name, state}` into name, state and recipe."""
    reader = _BodyReader(body, "a project with name and state")
    name = reader.name("name")
    state: Any = reader.body.get("state")
    try:
        recipe = read_recipe(state)
    except RecipeError as error:
        if error.code != "validation_failed":
            raise RequestError(error.code, f"{error}") from None
        has_state = "state" in reader.body
        reader.errors += error.errors if has_state else [("state", "expected an object, got none")]
    reader.raise_errors()
    return name, state, recipe


def read_dataset(body: Any) -> tuple[str, list[Record]]:
    """Parse `{name, rows}`; a row that is not an object is rejected with its index (REPLAY-14)."""
    reader = _BodyReader(body, "a dataset with name and rows")
    name = reader.name("name")
    rows: Any = reader.body.get("rows")
    if not isinstance(rows, list):
        reader.expect("rows", "a list of objects", rows)
    reader.raise_errors()
    if len(rows) > MOST_ROWS:
        raise RequestError(
            "limit_exceeded", f"rows: expected at most {MOST_ROWS:,}, got {len(rows):,}", limit=MOST_ROWS
        )
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise RequestError("row_invalid", f"rows[{index}]: expected an object, got {describe(row)}", index=index)
    return name, rows


def read_replay(body: Any, is_streamed: bool = False) -> ReplayRequest:
    """Parse `{projectId, limit?, offset?, profile?}` (REPLAY-12)."""
    reader = _BodyReader(body, "an object with projectId")
    project_id = reader.name("projectId")
    limit = reader.integer("limit", 1) if "limit" in reader.body else None if is_streamed else DEFAULT_LIMIT
    offset = reader.integer("offset", 0) if "offset" in reader.body else 0
    profile = reader.name("profile") if "profile" in reader.body else ""
    reader.raise_errors()
    most = MOST_ROWS if is_streamed else MOST_AT_ONCE
    if limit is not None and limit > most:
        more = "" if is_streamed else ". Use offset, or ?stream=true"
        raise RequestError("limit_exceeded", f"limit: expected at most {most:,}, got {limit:,}{more}", limit=most)
    return ReplayRequest(project_id, limit, offset, profile)


def read_execution(body: Any) -> tuple[str, Any, Any, str]:
    """Parse `{projectId | state, row?, profile?}` into project id, state, row and profile."""
    reader = _BodyReader(body, "an object with projectId or state")
    if ("projectId" in reader.body) == ("state" in reader.body):
        reader.errors.append(("projectId", "expected either projectId or state"))
    project_id = reader.name("projectId") if "projectId" in reader.body else ""
    profile = reader.name("profile") if "profile" in reader.body else ""
    reader.raise_errors()
    return project_id, reader.body.get("state"), reader.body.get("row", {}), profile


def check_page(limit: int, offset: int) -> tuple[int, int]:
    """Validate the limit and offset of a page of results; return them."""
    if limit < 1 or offset < 0:
        raise RequestError(
            "validation_failed", f"expected a limit of 1 or more and an offset of 0 or more, got {limit}, {offset}"
        )
    if limit > MOST_IN_LIST:
        message = f"limit: expected at most {MOST_IN_LIST:,}, got {limit:,}"
        raise RequestError("limit_exceeded", message, limit=MOST_IN_LIST)
    # SQLite integers end at 2**63; any offset past the end gives an empty page.
    return limit, min(offset, _MAX_OFFSET)


def validation_error(errors: list[tuple[str, str]]) -> RequestError:
    """Combine all errors of a request, as pairs of path and message, into one."""
    shown = [{"path": path, "message": message} for path, message in errors[:_MAX_ERRORS]]
    path, message = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return RequestError("validation_failed", f"{path}: {message}{more}" if path else message, faults=shown)


class _BodyReader:
    """Reads the fields of a JSON body and collects their errors."""

    def __init__(self, body: Any, expected: str) -> None:
        self.errors: list[tuple[str, str]] = []
        if not isinstance(body, dict):
            raise validation_error([("", f"expected {expected}, got {describe(body)}")])
        self.body: Record = body

    def name(self, name: str) -> str:
        """Return a string that is not blank."""
        value = self.body.get(name)
        if isinstance(value, str) and value.strip() and len(value) <= LONGEST_NAME:
            return value
        if isinstance(value, str) and value.strip():
            self.errors.append((name, f"expected at most {LONGEST_NAME} characters, got {len(value):,}"))
        else:
            self.expect(name, "a text that is not blank", value)
        return ""

    def integer(self, name: str, minimum: int) -> int:
        """Return an integer; a boolean is not accepted."""
        value = self.body.get(name)
        # To JSON Schema, and so to the OpenAPI document, 2.0 is an integer too.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and value >= minimum:
            return value
        self.expect(name, f"a whole number from {minimum} up", value)
        return minimum

    def expect(self, name: str, expected: str, value: Any) -> None:
        got = describe(value) if name in self.body else "none"
        self.errors.append((name, f"expected {expected}, got {got}"))

    def raise_errors(self) -> None:
        if self.errors:
            raise validation_error(self.errors)
