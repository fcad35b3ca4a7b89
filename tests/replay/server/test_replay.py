"""Replays, runs and comparisons over HTTP."""

import http.client
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROWS = [{"q": "hi"}, {"q": "you"}, {"variables": 1}, {}]


@pytest.mark.req("REPLAY-7", "REPLAY-8", "REPLAY-9", "REPLAY-12")
def test_a_replay_records_every_row(service: Any, digest: str) -> None:
    project, dataset = service.project(), service.dataset(ROWS)
    ran = service.replay(project, dataset)
    assert ran.status == 200 and ran.value[0]["outputDigest"] == digest
    assert [run["status"] for run in ran.value] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert [run["missingVariablesCount"] for run in ran.value] == [0, 0, 0, 1]
    assert ran.value[0]["runId"].startswith(ran.headers["X-Replay-Id"])
    keys = {"runId", "createdAt", "rowIndex", "status", "outputDigest", "missingVariablesCount"}
    assert all(set(run) == keys for run in ran.value)


@pytest.mark.req("REPLAY-7", "REPLAY-13")
def test_a_run_can_be_looked_back_at(service: Any) -> None:
    project, dataset = service.project(), service.dataset(ROWS)
    ran = service.replay(project, dataset).value
    record = service.get(f"/api/runs/{ran[2]['runId']}").value
    assert (record["projectId"], record["datasetId"], record["rowIndex"]) == (project, dataset, 2)
    assert record["errors"][0]["errorCode"] == "row_invalid"
    text = service.get(f"/api/runs/{ran[0]['runId']}").value["trace"]["text"]
    assert text == "--- System ---\nHello Alice\n\n--- User ---\nAsk: hi"


@pytest.mark.req("REPLAY-5", "REPLAY-9")
def test_the_variable_and_node_that_failed_are_in_the_record(service: Any) -> None:
    state = {
        "nodes": [{"id": "n1", "data": {"label": "M", "type": "memory", "content": "{{m}}"}}],
        "variables": [{"id": "v1", "name": "m", "type": "dynamic", "value": "x", "resolver": "nowhere://x"}],
    }
    ran = service.replay(service.project(state), service.dataset([{}, {"m": "given"}])).value
    assert [run["status"] for run in ran] == ["failed", "succeeded"]
    (error,) = service.get(f"/api/runs/{ran[0]['runId']}").value["errors"]
    assert (error["errorCode"], error["variableId"], error["nodeId"]) == ("unsupported_scheme", "v1", "n1")


@pytest.mark.req("REPLAY-11", "REPLAY-16")
def test_a_changed_recipe_shows_as_drift(service: Any, state: Any) -> None:
    project, dataset = service.project(), service.dataset(ROWS)
    first, second = (service.replay(project, dataset).value for _ in range(2))
    assert [run["outputDigest"] for run in first] == [run["outputDigest"] for run in second]
    compared = service.get(f"/api/datasets/{dataset}/compare").value
    assert (compared["stable"], compared["drift"]) == (4, 0)
    state["nodes"][1]["data"]["content"] = "Please: {{q}}"
    service.ask("PUT", f"/api/projects/{project}", {"name": "p", "state": state})
    third = service.replay(project, dataset).value
    compared = service.get(f"/api/datasets/{dataset}/compare?status=drift&limit=1").value
    assert compared["drift"] == 3 and [row["rowIndex"] for row in compared["rows"]] == [0]
    pair = service.get(f"/api/runs/{second[0]['runId']}/compare/{third[0]['runId']}").value
    assert pair["status"] == "drift" and pair["segments"][0]["nodeId"] == "n2" and "+Please: hi" in pair["diff"]


WRONG: dict[str, list[Any]] = {
    "projectId": ["", "  ", None, 1, [], {}, "x" * 501],
    "limit": [0, -1, 1.5, "20", True, None, [], -(10**30)],
    "offset": [-1, 1.5, "0", False, None, {}],
    "profile": ["", 1, None, [], "nobody"],
}


@pytest.mark.req("REPLAY-12")
@pytest.mark.parametrize("more", [{name: value} for name, values in WRONG.items() for value in values])
def test_a_wrong_field_is_refused(service: Any, shared: tuple[str, str], more: Any) -> None:
    assert service.replay(shared[0], shared[1], **more).error == (400, "validation_failed")


@pytest.mark.req("REPLAY-12")
@pytest.mark.parametrize("limit", [201, 10**6, 10**30])
def test_more_than_200_rows_at_once_are_refused(service: Any, shared: tuple[str, str], limit: int) -> None:
    assert service.replay(*shared, limit=limit).error == (400, "limit_exceeded")


@pytest.mark.req("REPLAY-12")
def test_limits_and_offsets(service: Any, shared: tuple[str, str]) -> None:
    project = shared[0]
    dataset = service.dataset([{"q": number} for number in range(300)])
    indices = [run["rowIndex"] for run in service.replay(project, dataset).value]
    assert indices == list(range(20))
    assert len(service.replay(project, dataset, limit=200).value) == 200
    assert [run["rowIndex"] for run in service.replay(project, dataset, offset=298).value] == [298, 299]
    past = service.replay(project, dataset, offset=300)
    assert (past.status, past.value) == (200, [])


@pytest.mark.req("REPLAY-12")
def test_unknown_ids(service: Any, shared: tuple[str, str]) -> None:
    assert service.replay(shared[0], "none").error == (404, "dataset_not_found")
    assert service.replay("none", shared[1]).error == (404, "project_not_found")
    assert service.replay("../" * 5, shared[1]).error == (404, "project_not_found")
    assert service.get("/api/runs/none").error == (404, "run_not_found")
    assert service.get("/api/datasets/none/runs").error == (404, "dataset_not_found")


@pytest.mark.req("REPLAY-13")
def test_runs_are_listed_newest_first_and_filtered(service: Any) -> None:
    project, dataset = service.project(), service.dataset(ROWS)
    first, second = (service.replay(project, dataset).headers["X-Replay-Id"] for _ in range(2))
    runs = service.get(f"/api/datasets/{dataset}/runs").value
    assert len(runs) == 8 and {run["runId"].rpartition("-")[0] for run in runs[:4]} == {second}
    failed = service.get(f"/api/datasets/{dataset}/runs?status=failed&projectId={project}&limit=1&offset=1").value
    assert [run["runId"] for run in failed] == [f"{first}-2"]
    assert [run["rowIndex"] for run in service.get(f"/api/datasets/{dataset}/runs?rowIndex=3").value] == [3, 3]
    assert service.get(f"/api/datasets/{dataset}/runs?projectId=other").value == []
    assert [one["replayId"] for one in service.get(f"/api/datasets/{dataset}/replays").value] == [second, first]


@pytest.mark.req("REPLAY-13")
@pytest.mark.parametrize(
    "query, code",
    [
        *((f"limit={value}", "validation_failed") for value in ("0", "-1", "x", "", "1.5", "٣", "1e3", "9" * 5000)),
        *((f"offset={value}", "validation_failed") for value in ("-1", "x", "9" * 19)),
        *((f"rowIndex={value}", "validation_failed") for value in ("-1", "none")),
        *(("status=done", "validation_failed"), ("limit=1&limit=2", "validation_failed")),
        *(("limit=10001", "limit_exceeded"), ("&".join(["x=1"] * 101), "validation_failed")),
    ],
)
def test_a_wrong_parameter_is_refused(service: Any, shared: tuple[str, str], query: str, code: str) -> None:
    path = f"/api/datasets/{shared[1]}/runs?{query}".encode().decode("latin-1")
    assert service.get(path.replace("Ù", "%D9").replace("£", "%A3")).error == (400, code)


@pytest.mark.req("REPLAY-14")
def test_execute_assembles_once(service: Any, state: Any) -> None:
    trace = service.post("/api/execute", {"state": state, "row": {"q": "hi"}}).value
    assert trace["text"].endswith("Ask: hi") and len(trace["segments"]) == 2
    assert service.post("/api/execute", {"projectId": service.project()}).value["text"].endswith("{{q}}")
    wrong: list[Any] = [{}, [], {"state": 1}, {"projectId": 1}, {"projectId": ""}, {"state": {}, "projectId": "x"}]
    for body in wrong:
        assert service.post("/api/execute", body).error == (400, "validation_failed")
    assert service.post("/api/execute", {"projectId": "none"}).error == (404, "project_not_found")


# -- streams ------------------------------------------------------------------------------------------


def events_in(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream: name and value of each."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_stream_tells_every_window_and_what_all_came_to(service: Any) -> None:
    project, dataset = service.project(), service.dataset([{"q": "x"}] * 450 + [{"variables": 1}])
    ran = service.post(f"/api/datasets/{dataset}/replay?stream=true", {"projectId": project})
    assert ran.headers["Content-Type"].startswith("text/event-stream")
    *windows, (name, done) = events_in(ran.body)
    runs = [run for _, window in windows for run in window]
    assert {name for name, _ in windows} == {"runs"} and [run["rowIndex"] for run in runs] == list(range(451))
    assert name == "done" and (done["rows"], done["succeeded"], done["failed"]) == (451, 450, 1)
    assert service.get(f"/api/runs/{done['replayId']}-450").value["status"] == "failed"


def test_a_stream_that_cannot_begin_is_a_plain_refusal(service: Any, shared: tuple[str, str]) -> None:
    at = f"/api/datasets/{shared[1]}/replay?stream=true"
    assert service.post(at, {"projectId": "none"}).error == (404, "project_not_found")
    assert service.post(at, {"projectId": shared[0], "limit": 200_001}).error == (400, "limit_exceeded")
    assert service.post(at.replace("true", "yes"), {"projectId": shared[0]}).error == (400, "validation_failed")
    ((name, done),) = events_in(service.post(at, {"projectId": shared[0], "offset": 10**6}).body)
    assert name == "done" and done["rows"] == 0


MANY = [{"q": "x"}] * 100_000
"""More than fits between a service and a reader who does not read."""


def begin_stream(service: Any, dataset: str) -> http.client.HTTPResponse:
    """A streamed replay of which little is read yet."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=30)
    body, headers = json.dumps({"projectId": service.project()}), {"Content-Type": "application/json"}
    connection.request("POST", f"/api/datasets/{dataset}/replay?stream=true", body, headers)
    reply = connection.getresponse()
    assert reply.read(12) == b"event: runs\n"
    return reply


def test_a_reader_who_leaves_ends_the_stream(service: Any) -> None:
    dataset = service.dataset(MANY)
    begin_stream(service, dataset).close()
    kept = -1
    while kept != (kept := service.get(f"/api/datasets/{dataset}/replays").value[0]["rowCount"]):
        time.sleep(0.3)
    assert 0 < kept < len(MANY) and kept % 200 == 0
    assert service.get(f"/api/datasets/{dataset}/runs?limit=1&rowIndex=0").value


def test_a_stream_that_breaks_ends_with_an_error(start: Callable[..., Any], tmp_path: Path) -> None:
    service = start()
    reply = begin_stream(service, service.dataset(MANY))
    (database,) = tmp_path.rglob("*.sqlite")
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        connection.execute("DROP TABLE windows")
        connection.commit()
    name, error = events_in(b"event: runs\n" + reply.read())[-1]
    assert (name, error["error"]) == ("error", "internal_error")
    assert "windows" in service.stop()


# -- models -------------------------------------------------------------------------------------------


@pytest.mark.req("REPLAY-17")
def test_only_profiles_of_the_settings_can_be_asked(start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "evalloom.yaml").write_text("llms: {mine: {protocol: echo}}\n", encoding="utf-8")
    (tmp_path / "script.yaml").write_text("- answer: secret\n", encoding="utf-8")
    service = start(env={"OPENAI_API_KEY": "sk-not-for-others-0123456789"})
    project, dataset = service.project(), service.dataset([{"q": "hi"}])
    for profile in ("mine", "echo"):
        (run,) = service.replay(project, dataset, profile=profile).value
        assert service.get(f"/api/runs/{run['runId']}").value["trace"]["model"]["profile"] == profile
    for profile in ("scripted:script.yaml", "openai:gpt-9", "openai", "anthropic:x", "Mine"):
        assert service.replay(project, dataset, profile=profile).error == (400, "validation_failed")
        refused = service.post("/api/execute", {"projectId": project, "profile": profile})
        assert refused.error == (400, "validation_failed") and refused.value["faults"][0]["path"] == "profile"
    schemas = service.get("/openapi.json").value["components"]["schemas"]
    assert schemas["ProfileName"]["enum"] == ["echo", "mine"]
