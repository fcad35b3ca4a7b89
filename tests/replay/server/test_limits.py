"""What no request may do: hold up the others, or take what is not there."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest


def node(content: str) -> dict[str, Any]:
    return {"nodes": [{"id": "n", "data": {"label": "N", "type": "user_input", "content": content}}]}


def test_a_slow_pattern_holds_up_nobody(service: Any) -> None:
    rows = [{"q": "a" * 60 + "!", "_expected": {"regex": "(a|a)+$"}}] * 5
    project, dataset = service.project(node("{{q}}")), service.dataset(rows)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(service.replay(project, dataset, profile="echo")))
    asking.start()
    slowest = 0.0
    while asking.is_alive():
        began = time.monotonic()
        assert service.get("/healthz").status == 200
        slowest = max(slowest, time.monotonic() - began)
    # Each of the five patterns searches for a second; on the loop all of them together would hold up everybody.
    assert answers[0].status == 200 and slowest < 4


@pytest.mark.parametrize("scheme", ["file://", "sqlite://", "chat://", "sql://", "http://", "env://"])
def test_a_long_resolver_is_refused_at_once(service: Any, scheme: str) -> None:
    variable = {"id": "v", "name": "v", "type": "dynamic", "resolver": scheme + "a/" * 500_000, "value": "SELECT 1"}
    trace = service.post("/api/execute", {"state": {**node("{{v}}"), "variables": [variable]}}).value
    assert [one["code"] for one in trace["messages"]] == ["connect_failed"]
    assert "at most 4,096 characters" in trace["messages"][0]["message"]


def test_a_value_in_a_hundred_thousand_places(service: Any) -> None:
    body = {"state": node("{{a}}" * 200_000), "row": {"a": "x" * 20_000}}
    assert len(service.post("/api/execute", body).value["text"]) == 20_000


def test_no_depth_is_an_error_of_ours(service: Any) -> None:
    for depth in (900, 960, 970, 972, 974, 976, 980, 990, 1_000, 1_100):
        row = '{"a":' * depth + "1" + "}" * depth
        body = f'{{"state": {json.dumps(node("{{q}}"))}, "row": {row}}}'
        reply = service.ask("POST", "/api/execute", body.encode(), {"Content-Type": "application/json"})
        assert reply.status == 200 or reply.error[0] == 400


def test_runs_may_be_removed_while_others_read_them(service: Any) -> None:
    project, dataset = service.project(), service.dataset([{"q": str(row)} for row in range(300)])
    run = service.replay(project, dataset).value[5]["runId"]
    statuses: set[int] = set()

    def read() -> None:
        for _ in range(40):
            for path in (f"/api/datasets/{dataset}/runs?status=succeeded&rowIndex=5", f"/api/runs/{run}"):
                statuses.add(service.get(path).status)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert service.ask("DELETE", f"/api/datasets/{dataset}?withRuns=true").status == 204
    for reader in readers:
        reader.join()
    assert statuses <= {200, 404} and service.get(f"/api/runs/{run}").status == 404


def test_a_table_gives_the_rows_that_the_command_line_reads(service: Any) -> None:
    table = b'q,_expected,_tags\nhi,"{""mustContain"": [""zzz""]}","a,b"\n'
    made = service.post("/api/datasets?name=t", table, **{"Content-Type": "text/csv"}).value
    [row] = service.get(f"/api/datasets/{made['id']}").value["rows"]
    assert row["q"] == "hi" and row["_expected"] == {"mustContain": ["zzz"]}


def test_a_table_of_many_columns(service: Any) -> None:
    names = ",".join(f"c{number}" for number in range(100_000))
    made = service.post("/api/datasets", f"{names}\n{names}\n".encode(), **{"Content-Type": "text/csv"})
    assert made.status == 201 and made.value["rowCount"] == 1


def test_columns_are_texts(service: Any) -> None:
    made = service.post("/api/datasets", b"q,tags\nhi,red;blue\n", **{"Content-Type": "text/csv"}).value
    assert service.get(f"/api/datasets/{made['id']}").value["rows"] == [{"q": "hi", "tags": "red;blue"}]


def test_blank_and_huge_parameters(service: Any) -> None:
    dataset = service.dataset([{}])
    assert service.get(f"/api/datasets/{dataset}/runs?projectId=").error == (400, "validation_failed")
    assert service.get(f"/api/datasets/{dataset}/runs?limit=99999999999999999999").error == (400, "limit_exceeded")
    assert service.get("/healthz?" + "&".join(f"p{number}=1" for number in range(200))).status == 200
