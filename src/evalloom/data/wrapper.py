"""Documents that wrap their records: one object with the list of them under a usual name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalloom.core.model import Path, Record, Remark, error
from evalloom.core.text import describe
from evalloom.data.chat import is_messages
from evalloom.data.dialect import Expanded

WRAPPERS = (
    "examples",
    "samples",
    "cases",
    "tests",
    "test_cases",
    "testCases",
    "goldens",
    "data",
    "rows",
    "items",
    "questions",
    "conversations",
)
_CASE_FIELDS = (
    "input",
    "inputs",
    "query",
    "question",
    "prompt",
    "messages",
    "user_input",
    "variables",
    "vars",
    "scenario",
)
"""An object with one of these is a case itself, whatever lists it has."""


def expand_wrapper(document: Record) -> Expanded | None:
    """The records under the one usual name that the document has; None when it wraps nothing."""
    found = [key for key in WRAPPERS if _holds_records(document.get(key))]
    if len(found) != 1 or any(field in document for field in _CASE_FIELDS):
        return None
    return records_under(found[0], document[found[0]])


def wraps_records(document: Record) -> bool:
    """Whether a document has a list of records under a usual name."""
    return any(_holds_records(document.get(key)) for key in WRAPPERS)


def holds_objects(document: Record) -> bool:
    """Whether a document has a list of objects under any name."""
    lists = (value for value in document.values() if isinstance(value, list))
    return any(isinstance(item, dict) for items in lists for item in items)


def _holds_records(value: Any) -> bool:
    # A list of messages belongs to one conversation: it is a case, and not a list of cases.
    return isinstance(value, list) and any(isinstance(item, dict) for item in value) and not _is_conversation(value)


def _is_conversation(items: list[Any]) -> bool:
    shared = [item for item in items if isinstance(item, dict)]
    if is_messages(items) and all("content" in item for item in shared):
        return True
    return all("from" in item and "value" in item for item in shared)


def records_under(key: str, items: list[Any]) -> Iterator[tuple[Path, Record] | Remark]:
    """The objects of a list in a document, with their paths; whatever else stands there is an error."""
    for number, item in enumerate(items):
        if isinstance(item, dict):
            yield (key, number), item
        else:
            yield error("json_not_object", (key, number), f"{key}[{number}]: expected an object, got {describe(item)}")
