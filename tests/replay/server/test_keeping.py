"""What was answered is kept: after a kill, a restart, and beside another service on the same folder."""

import http.client
import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def test_a_stop_lets_what_is_going_on_come_to_its_end(start: Callable[..., Any]) -> None:
    service = start()
    project, dataset = service.project(), service.dataset([{"q": "x"}] * 20_000)
    connection = http.client.HTTPConnection(service.host, service.port, timeout=30)
    body, headers = json.dumps({"projectId": project}), {"Content-Type": "application/json"}
    connection.request("POST", f"/api/datasets/{dataset}/replay?stream=true", body, headers)
    reply = connection.getresponse()
    assert reply.read(20).startswith(b"event: runs")
    service.process.send_signal(signal.SIGTERM)
    assert b'event: done\ndata: {"replayId":' in reply.read()[-200:]
    connection.close()
    assert service.stop(signal.SIGINT) == "" and service.process.returncode == 0
