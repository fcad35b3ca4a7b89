"""Projects over HTTP."""

from typing import Any

import pytest


@pytest.mark.req("REPLAY-1", "REPLAY-14")
def test_a_project_is_created_listed_replaced_and_deleted(service: Any, state: Any) -> None:
    made = service.post("/api/projects", {"name": "demo", "state": {**state, "zoom": 2}})
    at = made.headers["Location"]
    assert made.status == 201 and at == f"/api/projects/{made.value['id']}"
    assert service.get(at).value == made.value
    assert made.value["state"]["zoom"] == 2
    assert made.value["id"] in [one["id"] for one in service.get("/api/projects?limit=10000").value]
    changed = service.ask("PUT", at, {"name": "other", "state": state})
    assert changed.status == 200 and service.get(at).value["name"] == "other"
    gone = service.ask("DELETE", at)
    assert (gone.status, gone.body) == (204, b"")
    assert service.get(at).error == service.ask("DELETE", at).error == (404, "project_not_found")


NO_NAMES: list[Any] = ["", " \u3000", None, 1, ["x"], {}, "x" * 501]
NO_STATES: list[Any] = [
    *(None, 1, "s", [], {}, {"nodes": None}, {"nodes": {}}, {"nodes": [], "edges": {}}, {"nodes": [], "variables": 1}),
    *({"nodes": [node]} for node in (None, 1, {}, {"id": ""}, {"id": 1, "data": {}}, {"id": "a", "data": []})),
    *({"nodes": [], "edges": [edge]} for edge in (1, {}, {"source": 1, "target": "a"}, {"source": "a"})),
    *({"nodes": [], "variables": [one]} for one in (1, {}, {"id": "v"}, {"id": "v", "name": "n", "type": "other"})),
]
NO_PROJECTS: list[Any] = [
    *({}, {"name": "x"}, {"state": {"nodes": []}}, [], "text", 1),
    *({"name": name, "state": {"nodes": []}} for name in NO_NAMES),
    *({"name": "x", "state": state} for state in NO_STATES),
]


@pytest.mark.req("REPLAY-14")
@pytest.mark.parametrize("body", NO_PROJECTS)
def test_what_is_no_project_is_refused(service: Any, body: Any) -> None:
    assert service.post("/api/projects", body).error == (400, "validation_failed")


def test_all_that_is_wrong_is_told_with_its_path(service: Any) -> None:
    nodes = [{"id": "a", "data": {"content": 1}}, {"id": "a", "data": {}}]
    refused = service.post("/api/projects", {"name": "x", "state": {"nodes": nodes}})
    paths = [error["path"] for error in refused.value["faults"]]
    assert paths == ["state.nodes[0].data.content", "state.nodes[1].id"]


def test_ten_thousand_variables_and_a_million_braces_are_taken(service: Any) -> None:
    variables = [{"id": f"v{number}", "name": f"n{number}", "value": "x"} for number in range(10_000)]
    nodes = [{"id": "a", "data": {"content": "{{" * 500_000}}]
    made = service.post("/api/projects", {"name": "x", "state": {"nodes": nodes, "variables": variables}})
    assert made.status == 201
    ran = service.replay(made.value["id"], service.dataset([{"n1": "y"}]))
    assert ran.status == 200 and ran.value[0]["status"] == "succeeded"


@pytest.mark.parametrize("kind, most", [("nodes", 1_000), ("variables", 20_000)])
def test_too_large_a_recipe_is_refused(service: Any, kind: str, most: int) -> None:
    items = [{"id": f"i{number}", "name": f"i{number}", "data": {}} for number in range(most + 1)]
    refused = service.post("/api/projects", {"name": "x", "state": {"nodes": [], kind: items}})
    assert refused.error == (400, "limit_exceeded")
