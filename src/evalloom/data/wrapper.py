"""Documents that wrap their records: one object with the list of records under a common name."""

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
"""An object with one of these fields is a case itself, whatever lists it has."""


def expand_wrapper(document: Record) -> Expanded | None:
    """Yield the records of a document that has exactly one of the wrapper names; None if it wraps nothing."""
    names = [key for key in WRAPPERS if _holds_records(document.get(key))]
    if len(names) != 1 or any(field in document for field in _CASE_FIELDS):
        return None
    return records_under(names[0], document[names[0]])


def wraps_records(document: Record) -> bool:
    """Whether a document has a list of records under a common name."""
    return any(_holds_records(document.get(key)) for key in WRAPPERS)


def holds_objects(document: Record) -> bool:
    """Whether a document has a list of objects under any name."""
    lists = (value for value in document.values() if isinstance(value, list))
    return any(isinstance(item, dict) for items in lists for item in items)


def _holds_records(value: Any) -> bool:
    objects = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    if not objects:
        return False
    # A list of messages is one conversation, so it is one case and not a list of cases.
    is_conversation = is_messages(value) and all("content" in item for item in objects)
    return not is_conversation and not all("from" in item and "value" in item for item in objects)


def records_under(key: str, items: list[Any]) -> Iterator[tuple[Path, Record] | Remark]:
    """Yield the objects of a list in a document with their paths, and an error for each other item."""
    for number, item in enumerate(items):
        if isinstance(item, dict):
            yield (key, number), item
        else:
            yield error("json_not_object", (key, number), f"{key}[{number}]: expected an object, got {describe(item)}")
