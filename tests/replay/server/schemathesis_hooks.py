"""What a JSON Schema cannot say, told to schemathesis, so that what it takes for valid is valid."""

from typing import Any

import schemathesis

UPLOADS = {"text/csv": "q,n\nhi,1\n", "application/x-ndjson": '{"q":"hi"}\n', "application/jsonl": '{"q":"hi"}\n'}
MOST_AT_ONCE = 200


def is_meant_well(case: Any) -> bool:
    """Whether schemathesis takes the request for valid."""
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whatever a file is made of is text, so none is of a wrong type."""
    return case.media_type not in UPLOADS or is_meant_well(case)


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """A file holds what its format wants, ids stand once each, and only a stream takes more than 200 rows."""
    if not is_meant_well(case):
        return case
    if case.media_type in UPLOADS:
        case.body = UPLOADS[case.media_type]
    elif isinstance(case.body, dict):
        case.body = {name: mended(name, value) for name, value in case.body.items()}
    return case


def mended(name: str, value: Any) -> Any:
    """The value of a field of a body."""
    if name == "state":
        return {**value, **{part: told_apart(value[part]) for part in ("nodes", "variables") if part in value}}
    if name == "limit":
        return min(value, MOST_AT_ONCE)
    return value


def told_apart(items: list[Any]) -> list[Any]:
    """Items of which each has an id and a name of its own."""
    return [
        {**item, **{key: f"{item[key].strip()}-{at}" for key in ("id", "name") if isinstance(item.get(key), str)}}
        for at, item in enumerate(items)
    ]
