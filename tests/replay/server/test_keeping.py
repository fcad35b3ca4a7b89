"""What was answered is kept: after a kill, a restart, and beside another service on the same folder."""

import http.client
import json
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.req("REPLAY-7", "REPLAY-11")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_answered_is_there_after_a_restart(start: Callable[..., Any], how: signal.Signals) -> None:
    first = start()
    project, dataset = first.project(), first.dataset([{"q": number} for number in range(30)])
    runs = first.replay(project, dataset, limit=30).value
    record = first.get(f"/api/runs/{runs[7]['runId']}").body
    first.stop(how)
    second = start()
    assert second.get(f"/api/runs/{runs[7]['runId']}").body == record
    assert second.get(f"/api/projects/{project}").status == 200
    assert sorted(second.get(f"/api/datasets/{dataset}/runs").value, key=lambda run: int(run["rowIndex"])) == runs
    again = second.replay(project, dataset, limit=30).value
    assert [run["outputDigest"] for run in again] == [run["outputDigest"] for run in runs]


def test_every_replay_that_was_answered_survives_a_kill(start: Callable[..., Any]) -> None:
    service = start()
    project, dataset = service.project(), service.dataset([{"q": "x"}] * 20)
    answered: list[str] = []

    def replay_on() -> None:
        while True:
            try:
                answered.append(service.replay(project, dataset).headers["X-Replay-Id"])
            except (OSError, http.client.HTTPException):
                return

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(replay_on) for _ in range(4)]
        while len(answered) < 50:
            assert not any(one.done() for one in waiting)
            time.sleep(0.01)
        service.stop(signal.SIGKILL)
    kept = {one["replayId"] for one in start().get(f"/api/datasets/{dataset}/replays?limit=10000").value}
    assert len(answered) >= 50 and set(answered) <= kept


def test_two_services_share_a_folder(start: Callable[..., Any], state: Any) -> None:
    one, two = start(), start()
    project, dataset = one.project(), two.dataset([{"q": "x"}] * 50)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit((one, two)[number % 2].replay, project, dataset, limit=50) for number in range(40)]
    assert {reply.result().status for reply in asked} == {200}
    assert len({reply.result().headers["X-Replay-Id"] for reply in asked}) == 40
    assert len(one.get(f"/api/datasets/{dataset}/replays").value) == 40
    state["nodes"][0]["data"]["content"] = "Changed"
    two.ask("PUT", f"/api/projects/{project}", {"name": "p", "state": state})
    one.replay(project, dataset)
    assert two.get(f"/api/datasets/{dataset}/compare").value["drift"] == 20


def open_stream(service: Any, dataset: str, **body: Any) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=30)
    sent, headers = json.dumps(body), {"Content-Type": "application/json"}
    connection.request("POST", f"/api/datasets/{dataset}/replay?stream=true", sent, headers)
    return connection


def test_a_stop_lets_what_is_going_on_come_to_its_end(start: Callable[..., Any]) -> None:
    service = start()
    project, dataset = service.project(), service.dataset([{"q": "x"}] * 5_000)
    connection = open_stream(service, dataset, projectId=project)
    reply = connection.getresponse()
    assert reply.read(20).startswith(b"event: runs")
    service.process.send_signal(signal.SIGTERM)
    assert b'event: done\ndata: {"replayId":' in reply.read()[-200:]
    connection.close()
    assert service.stop(signal.SIGINT) == "" and service.process.returncode == 0


SETTINGS = "llms: {{far: {{base_url: '{url}', model: m, timeout_s: 100}}}}\nprofiles: {{main: {{run: far}}}}\n"
ENDS_IN_S = 5


@pytest.mark.req("REPLAY-7")
def test_sigterm_ends_open_streams_with_a_last_event(
    start: Callable[..., Any], llm_server: Any, tmp_path: Path, state: Any
) -> None:
    (tmp_path / "evalloom.yaml").write_text(SETTINGS.format(url=llm_server.url))
    state["nodes"] = [{"id": "n", "data": {"content": "{{q}}"}}]
    service = start()
    project, dataset = service.project(state), service.dataset([{"q": "say: hi"}] * 32 + [{"q": "[[hang]]"}])
    stream = open_stream(service, dataset, projectId=project, profile="main").getresponse()
    answered = json.loads(stream.readline() and stream.readline().removeprefix(b"data: "))
    waiting = http.client.HTTPConnection(service.host, service.port, timeout=30)
    waiting.request("POST", "/api/datasets", b"{", {"Content-Length": "1000", "Content-Type": "application/json"})
    service.process.send_signal(signal.SIGTERM)
    assert b'event: error\ndata: {"error":"service_stopping"' in stream.read()
    assert waiting.getresponse().status == 503
    assert service.process.wait(ENDS_IN_S) == 0
    kept = start().get(f"/api/datasets/{dataset}/runs").value
    assert {run["runId"] for run in kept} == {run["runId"] for run in answered} and len(answered) == 32


def test_sigterm_does_not_wait_for_a_client_that_does_not_read(start: Callable[..., Any]) -> None:
    service = start()
    project, dataset = service.project(), service.dataset([{"q": "x"}] * 100_000)
    stream = open_stream(service, dataset, projectId=project).getresponse()
    first = json.loads(stream.readline() and stream.readline().removeprefix(b"data: "))
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(ENDS_IN_S) == 0
    received = stream.fp.read().count(b'"runId"') if stream.fp else 0
    again = start()
    [replay] = again.get(f"/api/datasets/{dataset}/replays").value
    assert replay["state"] == "interrupted" and replay["rowCount"] >= received + len(first)
    assert again.get(f"/api/runs/{first[0]['runId']}").status == 200


def test_sigterm_does_not_wait_for_a_store_that_is_locked(start: Callable[..., Any], tmp_path: Path) -> None:
    service = start()
    project = service.project()
    with closing(sqlite3.connect(tmp_path / "data/store/replay.sqlite")) as other, ThreadPoolExecutor() as pool:
        other.execute("BEGIN IMMEDIATE")
        refused = pool.submit(service.post, "/api/projects", {"name": "late", "state": {"nodes": []}})
        time.sleep(0.3)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(ENDS_IN_S) == 0
        assert refused.result().error == (503, "service_stopping")
    assert [one["id"] for one in start().get("/api/projects").value] == [project]
