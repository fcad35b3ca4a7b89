"""The JSON Schemas of the OpenAPI document: of requests by hand, of responses from the structs."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.json import schema_components

from evalloom.core.model import Record
from evalloom.replay.compare import ReplayComparison, RunComparison
from evalloom.replay.recipe.parse import MOST, VARIABLE_TYPES
from evalloom.replay.recipe.trace import RunRecord, RunSummary, Trace
from evalloom.replay.requests import DEFAULT_LIMIT, LONGEST_NAME, MOST_AT_ONCE, MOST_ROWS
from evalloom.replay.service import DatasetSummary, Project, ProjectSummary, ReplaySummary

_PREFIX = "#/components/schemas/"
NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""A character that is not white space; Python counts a few more as white space than other regex engines."""
ANY_NUMBER = 2**53 - 1
"""The largest integer that all JSON readers represent exactly."""


class Health(Struct, frozen=True):
    """The status of the service."""

    status: str
    version: str


class ReplayDone(Struct, frozen=True, rename="camel"):
    """The totals of a streamed replay."""

    replay_id: str
    rows: int
    succeeded: int
    failed: int


_RESPONSES = (
    *(Project, ProjectSummary, DatasetSummary, ReplaySummary),
    *(RunSummary, RunRecord, Trace, RunComparison, ReplayComparison, Health, ReplayDone),
)
"""The structs that are sent as they are."""


def ref(name: str) -> Record:
    """Refer to a schema by its name."""
    return {"$ref": _PREFIX + name}


def list_of(name: str) -> Record:
    """Return the schema of a list of named schemas."""
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


_REQUESTS: dict[str, Record] = {
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
"""The bodies of requests, and of responses without a struct."""


def components(profiles: Iterable[str]) -> dict[str, Record]:
    """Return every schema of the document, by name."""
    profile = {"enum": [*profiles], "description": "A profile or llm of the settings: the context is sent to it."}
    _, responses = schema_components(_RESPONSES, ref_template=_PREFIX + "{name}")
    return dict(sorted({**responses, **_REQUESTS, "ProfileName": profile}.items()))
