"""What the pages of replays compute and write, without a browser."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.replay.pages.conftest import Pages

from evalloom.pages.errors import RequestError
from evalloom.pages.site import Permissions
from evalloom.replay.files import replay_files

pytestmark = pytest.mark.req("REPLAY-19")


def replay(pages: Pages, stored: tuple[str, str], **fields: str) -> str:
    return pages.post(f"/replay/{stored[0]}/{stored[1]}", do="replay", **fields)


def edit(pages: Pages, stored: tuple[str, str], node: str, content: str, **fields: str) -> str:
    return pages.post(f"/replay/{stored[0]}", node=node, content=content, dataset=stored[1], **fields)


def test_a_replay_shows_all_rows_with_their_drift_at_once(pages: Pages, stored: tuple[str, str]) -> None:
    path = f"/replay/{stored[0]}/{stored[1]}"
    assert replay(pages, stored) == path
    first = pages.get(path)
    assert (first.counts.succeeded, first.counts.failed, first.counts.missing) == (27, 3, 4)
    assert first.before is None and {item.row.change for item in first.rows} == {""}
    template = next(node.template for node in pages.get(f"/replay/{stored[0]}").nodes if node.id == "memory")
    assert "/compare?a=" in edit(pages, stored, "memory", f"{template}!", do="replay")
    second = pages.get(path, show="drift")
    # Row 16 is invalid, so that it has no text that could change.
    assert (second.counts.drift, second.counts.stable, second.total) == (29, 1, 29)
    assert second.rows[0].changed == ["Memory"] and second.before.replay_id == first.replay.replay_id
    failed = pages.get(path, show="failed").rows
    assert [(item.row.row_index, item.code) for item in failed] == [
        (16, "row_invalid"),
        (17, "connect_failed"),
        (18, "connect_failed"),
    ]


def test_replays_of_the_command_line_are_there_too(pages: Pages) -> None:
    for _ in range(2):
        replay_files(Path("project.json"), "rows.jsonl", pages.service)
    [newest, _] = pages.get("/replay").replays
    assert (newest.replay.project_id, newest.replay.dataset_id, newest.project_name) == ("project", "rows", "")
    view = pages.get("/replay/project/rows")
    assert view.dataset is None and (view.counts.failed, view.counts.stable) == (3, 30)
    project = pages.get("/replay/project")
    assert not project.is_stored and [node.id for node in project.nodes] == ["system", "memory", "retrieval", "user"]


def test_the_words_of_our_paths_may_be_ids_of_projects(pages: Pages) -> None:
    recipe = Path("project.json").read_text()
    for name in ("run", "compare"):
        Path(f"{name}.json").write_text(recipe)
        replay_files(Path(f"{name}.json"), "rows.jsonl", pages.service, limit=1)
    assert pages.get("/replay/run/rows").project_id == "run"
    assert pages.get("/replay/compare").id == "compare"
    with pytest.raises(RequestError, match="no run"):
        pages.get("/replay/run/nothing-1")


def test_the_trace_says_where_a_run_failed_first_and_what_to_do(pages: Pages, stored: tuple[str, str]) -> None:
    replay(pages, stored)
    rows = pages.get(f"/replay/{stored[0]}/{stored[1]}", show="failed").rows
    view = pages.get(f"/replay/run/{rows[1].row.run_id}", show="failed")
    assert (view.failure.segment, view.failure.label, view.failure.error.variable_id) == (2, "Memory", "v7")
    assert "data source" in view.suggestions["connect_failed"]
    assert (view.position, view.total, view.previous, view.next) == (2, 3, rows[0].row.run_id, rows[2].row.run_id)
    memory = view.segments[1]
    assert memory.unfilled == ["account"] and ("小雨", "value", "user_name") in memory.rendered
    invalid = pages.get(f"/replay/run/{rows[0].row.run_id}")
    assert invalid.failure.segment == 0 and invalid.segments == []


def test_runs_and_replays_are_compared(pages: Pages, stored: tuple[str, str]) -> None:
    path = f"/replay/{stored[0]}/{stored[1]}"
    assert pages.get(f"{path}/compare").comparison is None
    replay(pages, stored)
    assert pages.get(f"{path}/compare").comparison is None
    edit(pages, stored, "user", "Q: {{question}}", do="save")
    replay(pages, stored, limit="20")
    compared = pages.get(f"{path}/compare")
    result = compared.comparison
    assert (result.stable, result.drift, result.new, result.gone) == (1, 19, 0, 10)
    assert compared.rows[0].segments[0].is_template and compared.rows[0].segments[0].change.label == "User"
    assert [row.row_index for row in pages.get(f"{path}/compare", status="gone").rows] == [*range(20, 30)]
    runs = pages.get("/replay/compare", a=compared.rows[0].a.run_id, b=compared.rows[0].b.run_id)
    assert runs.comparison.status == "drift" and not runs.text.is_equal
    ticked = [result.b, result.a]
    assert pages.get(f"{path}/compare", r=ticked).comparison.a == result.a
    assert msgspec.json.encode(compared) and msgspec.json.encode(runs)


def test_an_edit_keeps_line_breaks_and_refuses_what_somebody_else_changed(
    pages: Pages, stored: tuple[str, str]
) -> None:
    digest = pages.get(f"/replay/{stored[0]}").digest
    edit(pages, stored, "user", "a\r\n{{question}}", do="save", digest=digest)
    assert pages.get(f"/replay/{stored[0]}").nodes[3].template == "a\n{{question}}"
    with pytest.raises(RequestError, match="somebody else") as caught:
        edit(pages, stored, "user", "b", do="save", digest=digest)
    assert caught.value.code == "project_changed"
    project = pages.service.project(stored[0])
    assert project.state["edges"] and project.state["nodes"][0]["data"]["variables"] == ["question"]


def test_findings_are_those_of_validate(pages: Pages) -> None:
    node = {"data": {"label": "N", "type": "user_inptu", "content": "{{q}}"}}
    edges = [{"source": "a", "target": "b"}, {"source": "b", "target": "a"}]
    state = {"nodes": [{"id": "a", **node}, {"id": "b", **node}], "edges": edges}
    path = pages.post("/replay", create="project", name="cycle", text=json.dumps(state))
    view = pages.get(path)
    assert [(one.severity, one.code) for one in view.findings] == [
        ("error", "dependency_cycle"),
        ("warning", "recipe_doubt"),
        ("warning", "recipe_doubt"),
    ]
    assert [one.id for one in view.nodes] == ["a", "b"]


def test_a_model_needs_the_permission_to_run(pages: Pages, stored: tuple[str, str]) -> None:
    path = f"/replay/{stored[0]}/{stored[1]}"
    assert "offline" in pages.get(path).profiles
    replay(pages, stored, profile="offline")
    view = pages.get(path, show="check")
    assert (view.replay.checks_passed, view.replay.checks_failed, view.total) == (21, 2, 2)
    run = pages.get(f"/replay/run/{view.rows[0].row.run_id}")
    assert run.record.trace.model.status == "failed" and run.record.trace.model.checks
    pages.site.permissions = Permissions()
    assert pages.get(path).profiles == []
    with pytest.raises(RequestError) as caught:
        replay(pages, stored, profile="offline")
    assert caught.value.code == "not_allowed_here"


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", ".evalloom/store/replay.sqlite", "link.json", "\0"])
def test_only_files_below_the_folder_are_read(pages: Pages, folder: Path, name: str) -> None:
    (folder.parent / "secret.json").write_text('{"nodes": []}')
    (folder / "link.json").symlink_to(folder.parent / "secret.json")
    with pytest.raises(RequestError, match="there is no file"):
        pages.post("/replay", create="project", file=name)
    assert "link.json" not in pages.get("/replay", new="project").files


@pytest.mark.parametrize(
    ("text", "rows"),
    [('{"q": 1}\n{"q": 2}', 2), ('[{"q": 1}]', 1), ("q,a\n1,2\n3,4\n", 2), ("q\r\n日\r\n", 1)],
)
def test_rows_are_pasted_as_jsonl_an_array_or_csv(pages: Pages, text: str, rows: int) -> None:
    path = pages.post("/replay", create="dataset", name="pasted", text=text)
    view = pages.get(path.partition("?")[0], tab="preview")
    assert view.dataset.row_count == rows == len(view.preview) and view.project_id == "-"


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/replay", {"create": "project", "text": "{"}),
        ("/replay", {"create": "project", "text": "[]"}),
        ("/replay", {"create": "project", "text": '{"nodes": 3}'}),
        ("/replay", {"create": "dataset", "text": " "}),
        ("/replay", {"create": "dataset", "text": '{"a": 1}\n[1]'}),
        ("/replay", {"create": "something"}),
        ("/replay/{project}", {"do": "save", "node": "nobody"}),
        ("/replay/{project}", {"do": "dance"}),
        ("/replay/{project}/{dataset}", {"do": "replay", "limit": "-1"}),
        ("/replay/{project}/{dataset}", {"do": "replay", "offset": "99"}),
        ("/replay/{project}/{dataset}", {"do": "replay", "profile": "nobody"}),
        ("/replay/p_unknown/{dataset}", {"do": "replay"}),
        ("/replay/{project}/d_unknown", {"do": "replay"}),
        ("/replay/{project}/d_unknown", {"do": "delete"}),
    ],
)
def test_a_wrong_write_is_refused(pages: Pages, stored: tuple[str, str], path: str, form: dict[str, str]) -> None:
    before = pages.get("/replay")
    with pytest.raises(RequestError):
        pages.post(path.format(project=stored[0], dataset=stored[1]), **form)
    assert msgspec.to_builtins(pages.get("/replay")) == msgspec.to_builtins(before)


@pytest.mark.parametrize("id", ["<script>", "%2e%2e", "a" * 65, "\u202e", "x'--", "-"])
def test_a_hostile_id_is_not_found(pages: Pages, id: str) -> None:
    for path in (f"/replay/{id}", f"/replay/{id}/x", f"/replay/x/{id}", f"/replay/run/{id}", f"/replay/x/{id}/compare"):
        with pytest.raises(RequestError) as caught:
            pages.get(path)
        assert caught.value.code.endswith("_not_found")


def test_deleting_keeps_runs_unless_they_are_ticked(pages: Pages, stored: tuple[str, str]) -> None:
    path = f"/replay/{stored[0]}/{stored[1]}"
    replay(pages, stored)
    assert pages.post(f"/replay/{stored[0]}", do="delete") == "/replay"
    assert pages.get(path).counts.failed == 3 and not pages.get(f"/replay/{stored[0]}").is_stored
    pages.post(path, do="delete", runs="on")
    assert pages.get("/replay").replays == []
