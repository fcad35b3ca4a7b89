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
from evalloom.replay.schemas import LONGEST_NAME, MOST_IN_LIST, MOST_ROWS, RequestError, validation_error
from evalloom.replay.server import answers
from evalloom.replay.server.parse import Parameter, rows_of
from evalloom.replay.server.schemas import ANY_NUMBER, NAME, Health, ReplayDone, list_of, ref
from evalloom.replay.service import ReplayService
from evalloom.settings import Settings

UPLOADS = {"application/x-ndjson": ".jsonl", "application/jsonl": ".jsonl", "text/csv": ".csv"}
"""Media types of dataset uploads, with the matching file suffix."""


class Call(Struct, frozen=True):
    """The arguments of an endpoint: the service and the parsed request."""

    service: ReplayService
    ids: dict[str, str]
    query: Record
    explain: Callable[[BaseException], RequestError]
    """Turns an exception into the error sent to the client, after the response has started."""
    body: Any = None
    """The decoded JSON, or the bytes of an upload."""
    media_type: str = ""
    charset: str = ""


class Answer(Struct, frozen=True):
    """The successful response of an endpoint."""

    status: int
    description: str
    content: dict[str, Record] = {}
    headers: dict[str, str] = {}
    links: dict[str, Record] = {}


class Endpoint(Struct, frozen=True):
    """An HTTP endpoint. `errors` are its error codes beyond the common ones."""

    method: str
    path: str
    name: str
    summary: str
    act: Callable[[Call], Response] | Callable[[Call], Awaitable[Response]]
    answer: Answer
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Record] = {}
    errors: tuple[str, ...] = ()


NOUNS = {"projectId": "project", "datasetId": "dataset", "runId": "run", "a": "run", "b": "run"}
"""The kind of object that each path parameter identifies."""

# -- what they do -------------------------------------------------------------------------------------


async def _health(call: Call) -> Response:
    return answers.json(Health("ok", __version__))


def _create_project(call: Call) -> Response:
    project = call.service.create_project(call.body)
    return answers.created(project, f"/api/projects/{project.id}")


def _list_projects(call: Call) -> Response:
    return answers.json(call.service.projects(**call.query))


def _get_project(call: Call) -> Response:
    return answers.json(call.service.project(call.ids["projectId"]))


def _replace_project(call: Call) -> Response:
    return answers.json(call.service.replace_project(call.ids["projectId"], call.body))


def _delete_project(call: Call) -> Response:
    call.service.delete_project(call.ids["projectId"])
    return answers.no_content()


def _create_dataset(call: Call) -> Response:
    body = call.body
    if call.media_type in UPLOADS:
        body = {"name": call.query["name"], "rows": rows_of(body, UPLOADS[call.media_type], call.charset)}
    dataset = call.service.create_dataset(body)
    return answers.created(dataset, f"/api/datasets/{dataset.id}")


def _list_datasets(call: Call) -> Response:
    return answers.json(call.service.datasets(**call.query))


def _get_dataset(call: Call) -> Response:
    return answers.json(call.service.dataset(call.ids["datasetId"], **call.query))


def _delete_dataset(call: Call) -> Response:
    call.service.delete_dataset(call.ids["datasetId"], call.query["withRuns"])
    return answers.no_content()


async def _replay(call: Call) -> Response:
    _check_profile(call)
    if call.query["stream"]:
        return await _stream_replay(call)
    replay_id, summaries = await call.service.replay(call.ids["datasetId"], call.body)
    # Past the end of the dataset nothing is replayed, so there is no replay id.
    return answers.json(summaries, headers={"X-Replay-Id": replay_id} if replay_id else None)


def _list_replays(call: Call) -> Response:
    return answers.json(call.service.replays(call.ids["datasetId"], **call.query))


def _list_runs(call: Call) -> Response:
    query = call.query
    return answers.json(
        call.service.runs(
            call.ids["datasetId"],
            row_index=query["rowIndex"],
            status=query["status"] or "",
            check=query["check"] or "",
            project_id=query["projectId"] or "",
            limit=query["limit"],
            offset=query["offset"],
        )
    )


def _get_run(call: Call) -> Response:
    return answers.json(call.service.run(call.ids["runId"]))


def _compare_runs(call: Call) -> Response:
    return answers.json(call.service.compare_runs(call.ids["a"], call.ids["b"]))


def _compare_replays(call: Call) -> Response:
    query = call.query
    words = {name: query[name] or "" for name in ("a", "b", "status")}
    compared = call.service.compare_replays(
        call.ids["datasetId"], **words, limit=query["limit"], offset=query["offset"]
    )
    return answers.json(compared)


async def _execute(call: Call) -> Response:
    _check_profile(call)
    return answers.json(await call.service.execute(call.body))


def profiles_of(settings: Settings) -> list[str]:
    """List the profiles that clients may use: those of the settings, and echo."""
    return sorted({*settings.profiles, *settings.llms, "echo"})


def _check_profile(call: Call) -> None:
    # On the command line a profile may also name a file or any paid model; HTTP clients may not choose those.
    profile = call.body.get("profile") if isinstance(call.body, dict) else None
    named = profiles_of(call.service.settings)
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


async def _stream_replay(call: Call) -> Response:
    windows = call.service.replay_stream(call.ids["datasetId"], call.body)
    # Invalid requests fail in the first step, when an error response is still possible.
    first = await anext(windows, None)
    return answers.Events(_events(call, first, windows))


async def _events(call: Call, first: bytes | None, windows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield an event per stored window, then `done` with the totals or `error`."""
    done = ReplayDone("", 0, 0, 0)
    async with aclosing(windows):  # type: ignore[type-var]
        window = first
        try:
            while window is not None:
                done = _add_window(done, window)
                yield answers.event("runs", window)
                window = await anext(windows, None)
        except Exception as error:  # the response has started, so the error becomes an event
            yield answers.event("error", msgspec.json.encode(answers.error_body(call.explain(error))))
            return
    yield answers.event("done", msgspec.json.encode(done))


def _add_window(done: ReplayDone, window: bytes) -> ReplayDone:
    runs = _read_runs(window)
    succeeded = sum(run.status == "succeeded" for run in runs)
    replay_id = runs[0].run_id.rpartition("-")[0] if runs else done.replay_id
    return ReplayDone(replay_id, done.rows + len(runs), done.succeeded + succeeded, done.failed + len(runs) - succeeded)


# -- what they take -----------------------------------------------------------------------------------


def _integer(least: int, most: int, **more: int) -> Record:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


_LIMIT = Parameter("limit", _integer(1, MOST_IN_LIST, default=100), "How many at most.", "limit_exceeded")
_ROWS = Parameter("limit", _integer(1, MOST_ROWS), "How many rows at most; all by default.", "limit_exceeded")
_OFFSET = Parameter("offset", _integer(0, ANY_NUMBER, default=0), "How many to leave out before.")
_PAGE = (_LIMIT, _OFFSET)
_ROW_INDEX = Parameter("rowIndex", _integer(0, ANY_NUMBER), "Only the runs of this row, counted from 0.")
_STATUS = Parameter("status", {"type": "string", "enum": ["succeeded", "failed"]}, "Only the runs with this status.")
_NAMED: Record = {"type": "string", "pattern": r"\S", "maxLength": LONGEST_NAME}
_PROJECT = Parameter("projectId", _NAMED, "Only the runs of this project.")
_CHECK = Parameter(
    "check", {"type": "string", "enum": ["passed", "failed"]}, "Only the runs whose answer is as expected, or is not."
)
_STREAM = Parameter(
    "stream",
    {"type": "boolean", "default": False},
    "Server-sent events instead of one answer: `runs` with an array of summaries for every window that is recorded, "
    "at the end `done` with what they came to, or `error` with an error object.",
)
_WITH_RUNS = Parameter("withRuns", {"type": "boolean", "default": False}, "Its replays and runs too.")
_NAME = Parameter("name", {**NAME, "default": "upload"}, "The name of an uploaded file.")
_CHANGES = {"type": "string", "enum": ["stable", "drift", "new", "gone"]}
_COMPARED = (
    Parameter("a", _NAMED, "The earlier replay; the last but one by default."),
    Parameter("b", _NAMED, "The later replay; the last by default."),
    Parameter("status", _CHANGES, "Only the rows of which this is true."),
    *_PAGE,
)
_JSON_PROJECT = {answers.JSON: ref("ProjectBody")}
_FILES: dict[str, Record] = {kind: {"type": "string"} for kind in UPLOADS}


def _ok(description: str, schema: Record, **more: Any) -> Answer:
    return Answer(200, description, {answers.JSON: schema}, **more)


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
_LOCATION = {"Location": "Where it can be had."}
_NOTHING = Answer(204, "It is gone.")

ENDPOINTS = (
    Endpoint("GET", "/healthz", "health", "Say that the service is there.", _health, _ok("It is.", ref("Health"))),
    Endpoint(
        "POST",
        "/api/projects",
        "createProject",
        "Keep a context recipe.",
        _create_project,
        Answer(201, "The project.", {answers.JSON: ref("Project")}, _LOCATION, _PROJECT_LINKS),
        body=_JSON_PROJECT,
        errors=("limit_exceeded",),
    ),
    Endpoint(
        "GET",
        "/api/projects",
        "listProjects",
        "List the projects.",
        _list_projects,
        _ok("The projects.", list_of("ProjectSummary")),
        _PAGE,
    ),
    Endpoint(
        "GET",
        "/api/projects/{projectId}",
        "getProject",
        "Get a project.",
        _get_project,
        _ok("The project.", ref("Project")),
    ),
    Endpoint(
        "PUT",
        "/api/projects/{projectId}",
        "replaceProject",
        "Put another recipe in the place of a project's.",
        _replace_project,
        _ok("The project as it is now.", ref("Project")),
        body=_JSON_PROJECT,
        errors=("limit_exceeded",),
    ),
    Endpoint(
        "DELETE",
        "/api/projects/{projectId}",
        "deleteProject",
        "Delete a project; its runs stay.",
        _delete_project,
        _NOTHING,
    ),
    Endpoint(
        "POST",
        "/api/datasets",
        "createDataset",
        "Keep a dataset, sent as JSON or as a JSONL or CSV file.",
        _create_dataset,
        Answer(201, "The dataset.", {answers.JSON: ref("DatasetSummary")}, _LOCATION, _DATASET_LINKS),
        (_NAME,),
        {answers.JSON: ref("DatasetBody"), **_FILES},
        ("limit_exceeded", "row_invalid"),
    ),
    Endpoint(
        "GET",
        "/api/datasets",
        "listDatasets",
        "List the datasets.",
        _list_datasets,
        _ok("The datasets.", list_of("DatasetSummary")),
        _PAGE,
    ),
    Endpoint(
        "GET",
        "/api/datasets/{datasetId}",
        "getDataset",
        "Get a dataset with its rows.",
        _get_dataset,
        _ok("The dataset.", ref("Dataset")),
        (_ROWS, _OFFSET),
    ),
    Endpoint(
        "DELETE",
        "/api/datasets/{datasetId}",
        "deleteDataset",
        "Delete a dataset.",
        _delete_dataset,
        _NOTHING,
        (_WITH_RUNS,),
    ),
    Endpoint(
        "POST",
        "/api/datasets/{datasetId}/replay",
        "replay",
        "Assemble the context for each row of a dataset, and keep a record of each.",
        _replay,
        Answer(
            200,
            "What became of each row.",
            {answers.JSON: list_of("RunSummary"), answers.EVENTS: ref("ReplayEvent")},
            {"X-Replay-Id": "The id of the replay; not with stream=true, where the last event tells it."},
            _REPLAY_LINKS,
        ),
        (_STREAM,),
        {answers.JSON: ref("ReplayBody")},
        ("limit_exceeded", "project_not_found"),
    ),
    Endpoint(
        "GET",
        "/api/datasets/{datasetId}/replays",
        "listReplays",
        "List the replays of a dataset, the newest first.",
        _list_replays,
        _ok("The replays.", list_of("ReplaySummary")),
        _PAGE,
    ),
    Endpoint(
        "GET",
        "/api/datasets/{datasetId}/runs",
        "listRuns",
        "List the runs of a dataset, the newest first.",
        _list_runs,
        _ok("The runs.", list_of("RunSummary")),
        (_ROW_INDEX, _STATUS, _PROJECT, _CHECK, *_PAGE),
    ),
    Endpoint(
        "GET",
        "/api/datasets/{datasetId}/compare",
        "compareReplays",
        "Say which rows changed between two replays of a dataset.",
        _compare_replays,
        _ok("What changed, row by row.", ref("ReplayComparison")),
        _COMPARED,
        errors=("replay_not_found",),
    ),
    Endpoint(
        "GET",
        "/api/runs/{runId}",
        "getRun",
        "Get the whole record of a run.",
        _get_run,
        _ok("The record.", ref("RunRecord")),
    ),
    Endpoint(
        "GET",
        "/api/runs/{a}/compare/{b}",
        "compareRuns",
        "Say what changed between two runs.",
        _compare_runs,
        _ok("What changed, segment by segment.", ref("RunComparison")),
    ),
    Endpoint(
        "POST",
        "/api/execute",
        "execute",
        "Assemble a context once, and keep nothing.",
        _execute,
        _ok("How it was assembled.", ref("Trace")),
        body={answers.JSON: ref("ExecuteBody")},
        errors=("dependency_cycle", "limit_exceeded", "project_not_found", "row_invalid"),
    ),
)
