"""The table of endpoints, from which the routes and the OpenAPI document are built.

Plain functions run in a thread, async functions on the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from evalloom import __version__
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, quote
from evalloom.pages.errors import RequestError
from evalloom.pages.http import (
    EVENTS,
    JSON,
    EventStream,
    Parameter,
    created_response,
    encode_event,
    error_body,
    json_response,
    no_content,
)
from evalloom.pages.stopping import OpenWork
from evalloom.replay.requests import LONGEST_NAME, MOST_IN_LIST, MOST_ROWS, validation_error
from evalloom.replay.server.schemas import ANY_NUMBER, NAME, Health, ReplayDone, list_of, ref
from evalloom.replay.server.uploads import UPLOADS, parse_rows
from evalloom.replay.service import ReplayService
from evalloom.settings import Settings


class ApiRequest(Struct, frozen=True):
    """A parsed request, with the service that handles it."""

    service: ReplayService
    ids: dict[str, str]
    query: Record
    explain: Callable[[BaseException], RequestError]
    """Turns an exception into the error sent to the client, after the response has started."""
    open_work: OpenWork
    body: Any = None
    """The decoded JSON, or the bytes of an upload."""
    media_type: str = ""
    charset: str = ""


class SuccessResponse(Struct, frozen=True):
    """The successful response of an endpoint."""

    status: int
    description: str
    content: dict[str, Record] = {}
    headers: dict[str, str] = {}
    links: dict[str, Record] = {}


class ApiEndpoint(Struct, frozen=True):
    """An HTTP endpoint. `errors` are its error codes beyond the common ones."""

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[ApiRequest], Response] | Callable[[ApiRequest], Awaitable[Response]]
    success: SuccessResponse
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Record] = {}
    errors: tuple[str, ...] = ()


NOUNS = {"projectId": "project", "datasetId": "dataset", "runId": "run", "a": "run", "b": "run"}
"""The kind of object that each path parameter identifies."""

# -- handlers -----------------------------------------------------------------------------------------


async def _health(request: ApiRequest) -> Response:
    return json_response(Health("ok", __version__))


def _create_project(request: ApiRequest) -> Response:
    project = request.service.create_project(request.body)
    return created_response(project, f"/api/projects/{project.id}")


def _list_projects(request: ApiRequest) -> Response:
    return json_response(request.service.projects(**request.query))


def _get_project(request: ApiRequest) -> Response:
    return json_response(request.service.project(request.ids["projectId"]))


def _replace_project(request: ApiRequest) -> Response:
    return json_response(request.service.replace_project(request.ids["projectId"], request.body))


def _delete_project(request: ApiRequest) -> Response:
    request.service.delete_project(request.ids["projectId"])
    return no_content()


def _create_dataset(request: ApiRequest) -> Response:
    body = request.body
    if request.media_type in UPLOADS:
        body = {"name": request.query["name"], "rows": parse_rows(body, UPLOADS[request.media_type], request.charset)}
    dataset = request.service.create_dataset(body)
    return created_response(dataset, f"/api/datasets/{dataset.id}")


def _list_datasets(request: ApiRequest) -> Response:
    return json_response(request.service.datasets(**request.query))


def _get_dataset(request: ApiRequest) -> Response:
    return json_response(request.service.dataset(request.ids["datasetId"], **request.query))


def _delete_dataset(request: ApiRequest) -> Response:
    request.service.delete_dataset(request.ids["datasetId"], request.query["withRuns"])
    return no_content()


async def _replay(request: ApiRequest) -> Response:
    _check_profile(request)
    if request.query["stream"]:
        return await _stream_replay(request)
    replay_id, summaries = await request.service.replay(request.ids["datasetId"], request.body)
    # Past the end of the dataset nothing is replayed, so there is no replay id.
    return json_response(summaries, headers={"X-Replay-Id": replay_id} if replay_id else None)


def _list_replays(request: ApiRequest) -> Response:
    return json_response(request.service.replays(request.ids["datasetId"], **request.query))


def _list_runs(request: ApiRequest) -> Response:
    query = request.query
    return json_response(
        request.service.runs(
            request.ids["datasetId"],
            row_index=query["rowIndex"],
            status=query["status"] or "",
            check=query["check"] or "",
            project_id=query["projectId"] or "",
            limit=query["limit"],
            offset=query["offset"],
        )
    )


def _get_run(request: ApiRequest) -> Response:
    return json_response(request.service.run(request.ids["runId"]))


def _compare_runs(request: ApiRequest) -> Response:
    return json_response(request.service.compare_runs(request.ids["a"], request.ids["b"]))


def _compare_replays(request: ApiRequest) -> Response:
    query = request.query
    words = {name: query[name] or "" for name in ("a", "b", "status")}
    compared = request.service.compare_replays(
        request.ids["datasetId"], **words, limit=query["limit"], offset=query["offset"]
    )
    return json_response(compared)


async def _execute(request: ApiRequest) -> Response:
    _check_profile(request)
    return json_response(await request.service.execute(request.body))


def list_profiles(settings: Settings) -> list[str]:
    """List the profiles that clients may use: those of the settings, and echo."""
    return sorted({*settings.profiles, *settings.llms, "echo"})


def _check_profile(request: ApiRequest) -> None:
    # On the command line a profile may also name a file or any paid model; HTTP clients may not choose those.
    profile = request.body.get("profile") if isinstance(request.body, dict) else None
    named = list_profiles(request.service.settings)
    if isinstance(profile, str) and profile not in named:
        raise validation_error(
            [("profile", f"expected {' or '.join(named)}, got {quote(profile)}{did_you_mean(profile, named)}")]
        )


# -- a replay as a stream -----------------------------------------------------------------------------


class _RunStatus(Struct, frozen=True, rename="camel"):
    """The fields of a run that the last event counts."""

    run_id: str
    status: str


_read_runs = msgspec.json.Decoder(list[_RunStatus]).decode


async def _stream_replay(request: ApiRequest) -> Response:
    windows = request.service.replay_stream(request.ids["datasetId"], request.body)
    # Invalid requests fail in the first step, when an error response is still possible.
    first = await anext(windows, None)
    return EventStream(_events(request, first, windows))


async def _events(request: ApiRequest, first: bytes | None, windows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield an event per stored window, then `done` with the totals or `error`."""
    done = ReplayDone("", 0, 0, 0)
    async with aclosing(windows):  # type: ignore[type-var]
        window = first
        try:
            while window is not None:
                done = _add_window(done, window)
                yield encode_event("runs", window)
                async with request.open_work.until_stopped():
                    window = await anext(windows, None)
        except Exception as error:  # the response has started, so the error becomes an event
            yield encode_event("error", msgspec.json.encode(error_body(request.explain(error))))
            return
    yield encode_event("done", msgspec.json.encode(done))


def _add_window(done: ReplayDone, window: bytes) -> ReplayDone:
    runs = _read_runs(window)
    succeeded = sum(run.status == "succeeded" for run in runs)
    replay_id = runs[0].run_id.rpartition("-")[0] if runs else done.replay_id
    return ReplayDone(replay_id, done.rows + len(runs), done.succeeded + succeeded, done.failed + len(runs) - succeeded)


# -- the table ----------------------------------------------------------------------------------------


def _integer(least: int, most: int, **more: int) -> Record:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


_LIMIT = Parameter("limit", _integer(1, MOST_IN_LIST, default=100), "The maximum number of items.", "limit_exceeded")
_ROWS = Parameter("limit", _integer(1, MOST_ROWS), "The maximum number of rows; all by default.", "limit_exceeded")
_OFFSET = Parameter("offset", _integer(0, ANY_NUMBER, default=0), "The number of items to skip.")
_PAGE = (_LIMIT, _OFFSET)
_ROW_INDEX = Parameter("rowIndex", _integer(0, ANY_NUMBER), "Only the runs of this row, counted from 0.")
_STATUS = Parameter("status", {"type": "string", "enum": ["succeeded", "failed"]}, "Only the runs with this status.")
_NAME_OR_ID: Record = {"type": "string", "pattern": r"\S", "maxLength": LONGEST_NAME}
_PROJECT = Parameter("projectId", _NAME_OR_ID, "Only the runs of this project.")
_CHECK = Parameter(
    "check",
    {"type": "string", "enum": ["passed", "failed"]},
    "Only the runs whose answer passed, or failed, its checks.",
)
_STREAM = Parameter(
    "stream",
    {"type": "boolean", "default": False},
    "Server-sent events instead of one response: `runs` with an array of summaries for each recorded window, then "
    "`done` with the totals, or `error` with an error object.",
)
_WITH_RUNS = Parameter("withRuns", {"type": "boolean", "default": False}, "Delete its replays and runs, too.")
_NAME = Parameter("name", {**NAME, "default": "upload"}, "The name of an uploaded file.")
_CHANGES = {"type": "string", "enum": ["stable", "drift", "new", "gone"]}
_COMPARE_PARAMETERS = (
    Parameter("a", _NAME_OR_ID, "The earlier replay; by default the complete one before `b`."),
    Parameter("b", _NAME_OR_ID, "The later replay; the last complete one by default."),
    Parameter("status", _CHANGES, "Only the rows with this status."),
    *_PAGE,
)
_JSON_PROJECT = {JSON: ref("ProjectBody")}
_FILES: dict[str, Record] = {kind: {"type": "string"} for kind in UPLOADS}


def _ok(description: str, schema: Record, **more: Any) -> SuccessResponse:
    return SuccessResponse(200, description, {JSON: schema}, **more)


def _link(name: str, **parameters: str) -> Record:
    return {"operationId": name, "parameters": parameters}


_PROJECT_LINKS = {
    name: _link(name, projectId="$response.body#/id") for name in ("getProject", "replaceProject", "deleteProject")
}
_DATASET_LINKS = {
    name: _link(name, datasetId="$response.body#/id")
    for name in ("getDataset", "replay", "listRuns", "listReplays", "compareReplays", "deleteDataset")
}
_REPLAY_LINKS = {
    "getRun": _link("getRun", runId="$response.body#/0/runId"),
    "compareRuns": _link("compareRuns", a="$response.body#/0/runId", b="$response.body#/0/runId"),
    "compareReplays": _link("compareReplays", datasetId="$request.path.datasetId"),
    "listRuns": _link("listRuns", datasetId="$request.path.datasetId"),
    "listReplays": _link("listReplays", datasetId="$request.path.datasetId"),
}
_LOCATION = {"Location": "The URL of the new object."}
_DELETED = SuccessResponse(204, "Deleted.")

ENDPOINTS = (
    ApiEndpoint(
        "GET",
        "/healthz",
        "health",
        "Report that the service is running.",
        _health,
        _ok("It is running.", ref("Health")),
    ),
    ApiEndpoint(
        "POST",
        "/api/projects",
        "createProject",
        "Create a project from a context recipe.",
        _create_project,
        SuccessResponse(201, "The project.", {JSON: ref("Project")}, _LOCATION, _PROJECT_LINKS),
        body=_JSON_PROJECT,
        errors=("limit_exceeded",),
    ),
    ApiEndpoint(
        "GET",
        "/api/projects",
        "listProjects",
        "List the projects.",
        _list_projects,
        _ok("The projects.", list_of("ProjectSummary")),
        _PAGE,
    ),
    ApiEndpoint(
        "GET",
        "/api/projects/{projectId}",
        "getProject",
        "Get a project.",
        _get_project,
        _ok("The project.", ref("Project")),
    ),
    ApiEndpoint(
        "PUT",
        "/api/projects/{projectId}",
        "replaceProject",
        "Replace the recipe of a project.",
        _replace_project,
        _ok("The updated project.", ref("Project")),
        body=_JSON_PROJECT,
        errors=("limit_exceeded",),
    ),
    ApiEndpoint(
        "DELETE",
        "/api/projects/{projectId}",
        "deleteProject",
        "Delete a project; its runs stay.",
        _delete_project,
        _DELETED,
    ),
    ApiEndpoint(
        "POST",
        "/api/datasets",
        "createDataset",
        "Create a dataset from JSON, or from a JSONL or CSV file.",
        _create_dataset,
        SuccessResponse(201, "The dataset.", {JSON: ref("DatasetSummary")}, _LOCATION, _DATASET_LINKS),
        (_NAME,),
        {JSON: ref("DatasetBody"), **_FILES},
        ("limit_exceeded", "row_invalid"),
    ),
    ApiEndpoint(
        "GET",
        "/api/datasets",
        "listDatasets",
        "List the datasets.",
        _list_datasets,
        _ok("The datasets.", list_of("DatasetSummary")),
        _PAGE,
    ),
    ApiEndpoint(
        "GET",
        "/api/datasets/{datasetId}",
        "getDataset",
        "Get a dataset with its rows.",
        _get_dataset,
        _ok("The dataset.", ref("Dataset")),
        (_ROWS, _OFFSET),
    ),
    ApiEndpoint(
        "DELETE",
        "/api/datasets/{datasetId}",
        "deleteDataset",
        "Delete a dataset.",
        _delete_dataset,
        _DELETED,
        (_WITH_RUNS,),
    ),
    ApiEndpoint(
        "POST",
        "/api/datasets/{datasetId}/replay",
        "replay",
        "Assemble the context for each row of a dataset, and record each run.",
        _replay,
        SuccessResponse(
            200,
            "The summary of each run.",
            {JSON: list_of("RunSummary"), EVENTS: ref("ReplayEvent")},
            {"X-Replay-Id": "The id of the replay; not with stream=true, where the last event contains it."},
            _REPLAY_LINKS,
        ),
        (_STREAM,),
        {JSON: ref("ReplayBody")},
        ("limit_exceeded", "project_not_found"),
    ),
    ApiEndpoint(
        "GET",
        "/api/datasets/{datasetId}/replays",
        "listReplays",
        "List the replays of a dataset, the newest first.",
        _list_replays,
        _ok("The replays.", list_of("ReplaySummary")),
        _PAGE,
    ),
    ApiEndpoint(
        "GET",
        "/api/datasets/{datasetId}/runs",
        "listRuns",
        "List the runs of a dataset, the newest first.",
        _list_runs,
        _ok("The runs.", list_of("RunSummary")),
        (_ROW_INDEX, _STATUS, _PROJECT, _CHECK, *_PAGE),
    ),
    ApiEndpoint(
        "GET",
        "/api/datasets/{datasetId}/compare",
        "compareReplays",
        "List the rows that changed between two replays of a dataset.",
        _compare_replays,
        _ok("The changes, row by row.", ref("ReplayComparison")),
        _COMPARE_PARAMETERS,
        errors=("replay_not_found",),
    ),
    ApiEndpoint(
        "GET",
        "/api/runs/{runId}",
        "getRun",
        "Get the full record of a run.",
        _get_run,
        _ok("The record.", ref("RunRecord")),
    ),
    ApiEndpoint(
        "GET",
        "/api/runs/{a}/compare/{b}",
        "compareRuns",
        "Compare two runs.",
        _compare_runs,
        _ok("The changes, segment by segment.", ref("RunComparison")),
    ),
    ApiEndpoint(
        "POST",
        "/api/execute",
        "execute",
        "Assemble a context once, without a record.",
        _execute,
        _ok("The trace of the assembly.", ref("Trace")),
        body={JSON: ref("ExecuteBody")},
        errors=("dependency_cycle", "limit_exceeded", "project_not_found", "row_invalid"),
    ),
)
