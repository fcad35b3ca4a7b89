"""The JSON Schemas of what is sent and answered, where no struct of ours says them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.json import schema_components

from evalloom.core.model import Record
from evalloom.replay.compare import ReplayComparison, RunComparison
from evalloom.replay.recipe.parse import MOST, VARIABLE_TYPES
from evalloom.replay.recipe.trace import RunRecord, RunSummary, Trace
from evalloom.replay.schemas import DEFAULT_LIMIT, LONGEST_NAME, MOST_AT_ONCE, MOST_ROWS
from evalloom.replay.service import DatasetSummary, Project, ProjectSummary, ReplaySummary

_PLACE = "#/components/schemas/"
NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""Something beside white space; a few signs are that to Python and not to every reader of patterns."""
ANY_NUMBER = 2**53 - 1
"""The largest whole number that every reader of JSON agrees about."""


class Health(Struct, frozen=True):
    """That the service is there."""

    status: str
    version: str


class ReplayDone(Struct, frozen=True, rename="camel"):
    """What a streamed replay came to, once all of it is recorded."""

    replay_id: str
    rows: int
    succeeded: int
    failed: int


ANSWERED = (
    *(Project, ProjectSummary, DatasetSummary, ReplaySummary),
    *(RunSummary, RunRecord, Trace, RunComparison, ReplayComparison, Health, ReplayDone),
)
"""What is answered as it is."""


def ref(name: str) -> Record:
    """A schema by its name."""
    return {"$ref": _PLACE + name}


def list_of(name: str) -> Record:
    return {"type": "array", "items": ref(name)}


def _object(properties: Record, required: list[str], **more: object) -> Record:
    return {"type": "object", "properties": properties, "required": required, **more}


def _list(items: Record, most: int) -> Record:
    return {"type": "array", "items": items, "maxItems": most}


_TEXT: Record = {"type": "string"}
_NAME: Record = {"type": "string", "pattern": NOT_BLANK, "description": "Not blank."}
NAME: Record = {**_NAME, "maxLength": LONGEST_NAME}
_OFFSET: Record = {"type": "integer", "minimum": 0, "default": 0}


def _event(name: str, schema: Record) -> Record:
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    return {"properties": {"event": {"const": name}, "data": data}}


WRITTEN: dict[str, Record] = {
    "Error": _object(
        {
            "error": {"type": "string", "description": "A stable code."},
            "message": _TEXT,
            "index": {"type": "integer", "description": "The row that is no object."},
            "limit": {"type": "integer", "description": "What is allowed at most."},
            "nodeIds": {"type": "array", "items": _TEXT, "description": "The nodes of a cycle."},
            "faults": {
                "type": "array",
                "items": _object({"path": _TEXT, "message": _TEXT}, ["path", "message"]),
                "description": "Everything that is wrong with the body.",
            },
        },
        ["error", "message"],
    ),
    "Node": _object(
        {
            "id": _NAME,
            "data": _object(
                {"label": _TEXT, "type": _TEXT, "content": _TEXT, "variables": {"type": "array"}},
                [],
                description="type: system_prompt, user_input, messages, tools, memory, retrieval; any other is text.",
            ),
        },
        ["id", "data"],
    ),
    "Edge": _object({"source": _NAME, "target": _NAME}, ["source", "target"]),
    "Variable": _object(
        {
            "id": _NAME,
            "name": _NAME,
            "type": {"enum": list(VARIABLE_TYPES), "default": "static"},
            "value": {"description": "Any JSON; of a dynamic variable the query or argument."},
            "resolver": {
                "type": ["string", "null"],
                "description": "Where a dynamic variable is read: scheme://target.",
            },
        },
        ["id", "name"],
    ),
    "State": _object(
        {
            "nodes": _list(ref("Node"), MOST["nodes"]),
            "edges": _list(ref("Edge"), MOST["edges"]),
            "variables": _list(ref("Variable"), MOST["variables"]),
        },
        ["nodes"],
        description="A context recipe. Ids of nodes, and ids and names of variables, stand once each.",
    ),
    "ProjectBody": _object({"name": NAME, "state": ref("State")}, ["name", "state"]),
    "DatasetBody": _object(
        {"name": NAME, "rows": _list({"type": "object"}, MOST_ROWS)},
        ["name", "rows"],
    ),
    "Dataset": _object(
        {
            "id": _TEXT,
            "name": _TEXT,
            "rowCount": {"type": "integer"},
            "updatedAt": _TEXT,
            "rows": {"type": "array", "items": {"type": "object"}},
        },
        ["id", "name", "rowCount", "updatedAt", "rows"],
    ),
    "ReplayBody": _object(
        {
            "projectId": NAME,
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_ROWS,
                "description": f"How many rows: {DEFAULT_LIMIT} by default, at most {MOST_AT_ONCE}. With stream=true "
                f"all by default, at most {MOST_ROWS}.",
            },
            "offset": _OFFSET,
            "profile": ref("ProfileName"),
        },
        ["projectId"],
    ),
    "ReplayEvent": _object(
        {"event": _TEXT, "data": _TEXT},
        ["event", "data"],
        oneOf=[
            _event("runs", list_of("RunSummary")),
            _event("done", ref("ReplayDone")),
            _event("error", ref("Error")),
        ],
        description="One of the events that a replay with stream=true sends.",
    ),
    "ExecuteBody": _object(
        {
            "projectId": NAME,
            "state": ref("State"),
            "row": {"type": "object", "description": "As a row of a dataset; empty by default."},
            "profile": ref("ProfileName"),
        },
        [],
        oneOf=[{"required": ["projectId"]}, {"required": ["state"]}],
    ),
}
"""What is sent, and what is answered without a struct."""


def components(profiles: Iterable[str]) -> dict[str, Record]:
    """Every schema of the document by its name."""
    profile = {"enum": [*profiles], "description": "A profile or llm of the settings: the context is sent to it."}
    _, answered = schema_components(ANSWERED, ref_template=_PLACE + "{name}")
    return dict(sorted({**answered, **WRITTEN, "ProfileName": profile}.items()))
