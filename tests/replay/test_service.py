"""ReplayService: projects, datasets, replays, stored runs and comparisons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalloom import settings
from evalloom.core.digest import sha256_base64
from evalloom.pages.errors import RequestError
from evalloom.replay.service import ReplayService
from evalloom.replay.settings import ResolverSettings
from evalloom.settings import Settings

KEY = "sk-abcdefgh12345678abcdefgh"


def state_of(content: str = "Ask: {{q}}", variables: tuple[dict[str, Any], ...] = ()) -> Any:
    node = {"id": "n", "data": {"label": "User", "type": "user_input", "content": content, "variables": []}}
    return {"nodes": [node], "edges": [], "variables": list(variables)}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ReplayService]:
    service = ReplayService(tmp_path)
    yield service
    service.close()


def replay(service: ReplayService, dataset: str, project: str, **body: Any) -> list[dict[str, Any]]:
    _, summaries = asyncio.run(service.replay(dataset, {"projectId": project, **body}))
    found: list[dict[str, Any]] = json.loads(summaries)
    return found


def streamed(service: ReplayService, dataset: str, body: Any) -> list[list[dict[str, Any]]]:
    async def windows() -> list[bytes]:
        return [window async for window in service.replay_stream(dataset, body)]

    return [json.loads(window) for window in asyncio.run(windows())]


def begin(service: ReplayService, rows: int = 3, **state: Any) -> tuple[str, str]:
    dataset = service.create_dataset({"name": "rows", "rows": [{"q": f"q{number}"} for number in range(rows)]})
    return dataset.id, service.create_project({"name": "recipe", "state": state_of(**state)}).id


@pytest.mark.req("REPLAY-7", "REPLAY-12")
def test_replay_keeps_a_record_of_every_row(service: ReplayService) -> None:
    dataset, project = begin(service)
    summaries = replay(service, dataset, project, limit=2, offset=1)
    assert [one["rowIndex"] for one in summaries] == [1, 2]
    assert list(summaries[0]) == ["runId", "createdAt", "rowIndex", "status", "outputDigest", "missingVariablesCount"]
    record = service.run(summaries[0]["runId"])
    assert record.trace.text == "--- User ---\nAsk: q1"
    assert (record.project_id, record.dataset_id, record.created_at) == (project, dataset, summaries[0]["createdAt"])


@pytest.mark.req("REPLAY-16")
def test_a_stream_that_is_cut_off_is_running_then_interrupted_and_not_compared(service: ReplayService) -> None:
    dataset, project = begin(service, rows=450)
    assert len(streamed(service, dataset, {"projectId": project})) == 3

    async def cut_off() -> str:
        async with aclosing(service.replay_stream(dataset, {"projectId": project})) as windows:
            async for _ in windows:
                return service.replays(dataset)[0].state
        return ""

    assert asyncio.run(cut_off()) == "running"
    newest, first = service.replays(dataset)
    assert (newest.state, newest.row_count, newest.rows_requested, first.state) == ("interrupted", 200, 450, "complete")
    with pytest.raises(RequestError, match=f"two complete replays.*; {newest.replay_id} is interrupted"):
        service.compare_replays(dataset)
    streamed(service, dataset, {"projectId": project})
    compared = service.compare_replays(dataset)
    assert (compared.a, compared.stable, compared.left_out) == (first.replay_id, 450, [newest.replay_id])
    assert service.compare_replays(dataset, a=newest.replay_id).a_state == "interrupted"


@pytest.mark.req("REPLAY-11")
def test_same_project_and_dataset_give_the_same_digests(service: ReplayService, tmp_path: Path) -> None:
    dataset, project = begin(service)
    first = replay(service, dataset, project)
    again = ReplayService(tmp_path)
    for other in (service, again):
        later = replay(other, dataset, project)
        assert [one["outputDigest"] for one in later] == [one["outputDigest"] for one in first]
        assert not {one["runId"] for one in later} & {one["runId"] for one in first}
        assert service.run(later[2]["runId"]).trace.text == "--- User ---\nAsk: q2"
    again.close()


@pytest.mark.req("REPLAY-7")
def test_record_needs_neither_project_nor_dataset(service: ReplayService) -> None:
    dataset, project = begin(service)
    run_id = replay(service, dataset, project)[0]["runId"]
    service.replace_project(project, {"name": "new", "state": state_of("changed")})
    service.delete_project(project)
    service.delete_dataset(dataset)
    assert service.run(run_id).trace.segments[0].template == "Ask: {{q}}"


@pytest.mark.req("REPLAY-12")
def test_stream_goes_through_every_row(service: ReplayService) -> None:
    dataset, project = begin(service, rows=450)
    windows = streamed(service, dataset, {"projectId": project})
    assert [len(window) for window in windows] == [200, 200, 50]
    assert len({one["runId"].rpartition("-")[0] for window in windows for one in window}) == 1
    [kept] = service.replays(dataset)
    assert (kept.row_count, kept.succeeded, kept.failed) == (450, 450, 0)
    assert [
        len(window) for window in streamed(service, dataset, {"projectId": project, "limit": 201, "offset": 100})
    ] == [*(200, 1)]


def test_a_whole_number_may_be_written_with_a_point(service: ReplayService) -> None:
    """So JSON Schema has it, and so does the OpenAPI document."""
    dataset, project = begin(service)
    assert [run["rowIndex"] for run in replay(service, dataset, project, limit=2.0, offset=1.0)] == [1, 2]


NO_LIMITS: list[Any] = [0, -1, True, None, "5", 1.5, []]
NO_OFFSETS: list[Any] = [-1, False, None, "0", 0.5, {}]
NO_TEXTS: list[Any] = ["", "  ", None, 3, [], {}, True]


@pytest.mark.req("REPLAY-12")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        *(({"limit": 201}, "limit_exceeded"), ({"limit": 10**30}, "limit_exceeded")),
        *(({"limit": limit}, "validation_failed") for limit in NO_LIMITS),
        *(({"offset": offset}, "validation_failed") for offset in NO_OFFSETS),
        *(({"projectId": id}, "validation_failed") for id in NO_TEXTS),
        *(({"profile": name}, "validation_failed") for name in [*NO_TEXTS, "nobody"]),
        *(({"projectId": id}, "project_not_found") for id in ("nope", "../x", "x" * 400, "p\x00")),
    ],
)
def test_what_a_replay_refuses(service: ReplayService, body: dict[str, Any], code: str) -> None:
    dataset, project = begin(service)
    with pytest.raises(RequestError) as caught:
        asyncio.run(service.replay(dataset, {"projectId": project, **body}))
    assert caught.value.code == code


@pytest.mark.req("REPLAY-12")
def test_other_answers_of_a_replay(service: ReplayService) -> None:
    dataset, project = begin(service)
    assert replay(service, dataset, project, offset=3) == [] == replay(service, dataset, project, offset=10**40)
    assert service.replays(dataset) == []
    for body in NO_TEXTS[2:5]:
        with pytest.raises(RequestError, match="expected an object"):
            asyncio.run(service.replay(dataset, body))
    with pytest.raises(RequestError) as caught:
        replay(service, "../rows", project)
    assert caught.value.code == "dataset_not_found"
    with pytest.raises(RequestError) as caught:
        streamed(service, dataset, {"projectId": project, "limit": 200_001})
    assert caught.value.code == "limit_exceeded"


@pytest.mark.req("REPLAY-14")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        *((body, "validation_failed") for body in [*NO_TEXTS, {"name": "n"}, {"rows": []}]),
        *(({"name": "n", "rows": rows}, "validation_failed") for rows in NO_OFFSETS),
        *(({"name": name, "rows": []}, "validation_failed") for name in [*NO_TEXTS, "x" * 501]),
        ({"name": "n", "rows": [{}] * 200_001}, "limit_exceeded"),
        ({"name": "n", "rows": [{}, {}, 3]}, "row_invalid"),
    ],
)
def test_what_a_dataset_refuses(service: ReplayService, body: Any, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        service.create_dataset(body)
    assert caught.value.code == code
    assert caught.value.details.get("index") == (2 if code == "row_invalid" else None)
    assert service.datasets() == []


@pytest.mark.req("REPLAY-14")
def test_rows_come_back_as_they_were(service: ReplayService) -> None:
    rows = [{"q": 1.0, "中": None, "big": 10**30}, {"variables": 3}, {}]
    made = service.create_dataset({"name": "d", "rows": rows})
    assert json.loads(service.dataset(made.id)) == {**msgspec.to_builtins(made), "rows": rows}
    assert json.loads(service.dataset(made.id, limit=1, offset=1))["rows"] == rows[1:2]
    assert [one.row_count for one in service.datasets()] == [3]


@pytest.mark.req("REPLAY-1", "REPLAY-14")
def test_project_keeps_unknown_fields(service: ReplayService) -> None:
    state = {**state_of(), "viewport": {"zoom": 1.5}}
    state["nodes"][0] |= {"position": {"x": 1}, "data": {**state["nodes"][0]["data"], "color": "red"}}
    made = service.create_project({"name": "p", "state": state})
    assert service.project(made.id).state == state
    later = service.replace_project(made.id, {"name": "new", "state": state_of()})
    assert (service.project(made.id).name, [one.id for one in service.projects()]) == ("new", [made.id])
    assert later.updated_at >= made.updated_at
    service.delete_project(made.id)
    for call in (service.project, service.delete_project, lambda id: service.replace_project(id, {})):
        with pytest.raises(RequestError, match="there is no project"):
            call(made.id)


@pytest.mark.req("REPLAY-14")
def test_project_tells_all_faults_at_once(service: ReplayService) -> None:
    with pytest.raises(RequestError) as caught:
        service.create_project({"name": "", "state": {"nodes": [{"id": 1}], "edges": 3}})
    paths = [error["path"] for error in caught.value.details["faults"]]
    assert paths == ["name", "state.edges", "state.nodes[0].id", "state.nodes[0].data"]
    with pytest.raises(RequestError) as caught:
        service.create_project({"name": "p", "state": {"nodes": [{}] * 1_001}})
    assert caught.value.code == "limit_exceeded"


def dynamic(resolver: str, name: str = "d", value: str = "") -> dict[str, str]:
    return {"id": f"v_{name}", "name": name, "type": "dynamic", "value": value, "resolver": resolver}


@pytest.mark.req("REPLAY-5", "REPLAY-9")
def test_failing_row_is_recorded_and_does_not_end_the_replay(service: ReplayService) -> None:
    project = service.create_project({"name": "p", "state": state_of("{{d}}", (dynamic("file://none.txt"),))})
    dataset = service.create_dataset({"name": "d", "rows": [{"d": "own"}, {}, {"variables": []}, {"d": "x"}]})
    found = replay(service, dataset.id, project.id)
    assert [one["status"] for one in found] == ["succeeded", "failed", "failed", "succeeded"]
    [error] = service.run(found[1]["runId"]).errors
    assert (error.error_code, error.variable_id, error.node_id) == ("not_found", "v_d", "n")
    assert [one.row_index for one in service.runs(dataset.id, status="failed")] == [2, 1]


@pytest.mark.req("REPLAY-5", "REPLAY-11")
def test_resolvers_read_anew_in_every_replay(service: ReplayService, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("one", encoding="utf-8")
    project = service.create_project({"name": "p", "state": state_of("{{d}}", (dynamic("file://note.txt"),))})
    dataset = service.create_dataset({"name": "d", "rows": [{}]})
    first, same = (replay(service, dataset.id, project.id)[0] for _ in range(2))
    (tmp_path / "note.txt").write_text("two", encoding="utf-8")
    other = replay(service, dataset.id, project.id)[0]
    assert first["outputDigest"] == same["outputDigest"] != other["outputDigest"]
    assert service.run(first["runId"]).trace.text == "--- User ---\none"


@pytest.mark.req("REPLAY-15")
def test_store_is_closed_to_resolvers(service: ReplayService) -> None:
    state = state_of(
        "{{d}}{{e}}", (dynamic("file://store/replay.sqlite"), dynamic("sqlite://store/replay.sqlite", "e", "SELECT 1"))
    )
    project = service.create_project({"name": "p", "state": state})
    dataset = service.create_dataset({"name": "d", "rows": [{}]})
    record = service.run(replay(service, dataset.id, project.id)[0]["runId"])
    assert record.status == "failed" and len(record.errors) == 2


@pytest.mark.req("REPLAY-15")
def test_keys_are_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOP_KEY_X", "a secret of 2026, and quite long")
    service = ReplayService(tmp_path)
    text = f"a secret of 2026, and quite long|\n{KEY}|{{{{q}}}}"
    project = service.create_project({"name": KEY, "state": state_of(text)})
    dataset = service.create_dataset(
        {"name": KEY, "rows": [{"q": f"({KEY})", KEY: "a secret of 2026, and quite long"}]}
    )
    run = service.run(replay(service, dataset.id, project.id)[0]["runId"])
    assert run.trace.text == "--- User ---\n[hidden]|\n[hidden]|([hidden])"
    service.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in stored and b"a secret of 2026" not in stored


@pytest.mark.req("REPLAY-15")
def test_key_that_comes_about_when_assembling_is_hidden(service: ReplayService) -> None:
    project = service.create_project({"name": "p", "state": state_of("{{a}}-abcdefgh{{b}}")})
    dataset = service.create_dataset({"name": "d", "rows": [{"a": "sk", "b": "12345678abcdefgh"}]})
    run = service.run(replay(service, dataset.id, project.id)[0]["runId"])
    assert run.trace.text == "--- User ---\n[hidden]" and run.trace.segments[0].rendered == "[hidden]"
    assert run.output_digest == sha256_base64(run.trace.text)


@pytest.mark.req("REPLAY-15")
def test_what_was_made_before_a_secret_was_known_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ReplayService(tmp_path)
    project = service.create_project({"name": "p", "state": state_of("abcd1234{{q}}")})
    dataset = service.create_dataset({"name": "d", "rows": [{"q": "efgh5678ijkl"}]})
    replay(service, dataset.id, project.id)
    service.close()
    monkeypatch.setenv("HOP_KEY_X", "abcd1234efgh5678ijkl")
    service = ReplayService(tmp_path)
    run = service.run(replay(service, dataset.id, project.id)[0]["runId"])
    assert run.trace.text == "--- User ---\n[hidden]"
    service.close()


@pytest.mark.req("REPLAY-5")
def test_equal_resolvers_are_asked_once_and_all_within_a_limit(tmp_path: Path) -> None:
    settings = Settings(sections={"resolvers": ResolverSettings(timeout_s=0.02)})
    service = ReplayService(tmp_path, settings)
    (tmp_path / "n.sqlite").touch()
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c WHERE x < -{}"
    variables = tuple(dynamic("sqlite://n.sqlite", f"v{at}", endless.format(at)) for at in range(200))
    content = "".join(f"{{{{v{at}}}}}" for at in range(200))
    trace = asyncio.run(service.execute({"state": state_of(content, variables)}))
    told = [one.message for one in trace.messages if one.code == "timeout"]
    assert len(told) == 200 and any("other variables used up the time limit" in message for message in told)
    service.close()


@pytest.mark.req("REPLAY-16")
def test_changed_node_shows_as_drift(service: ReplayService) -> None:
    dataset, project = begin(service)
    with pytest.raises(RequestError, match="two complete replays"):
        service.compare_replays(dataset)
    a = replay(service, dataset, project)
    service.replace_project(project, {"name": "p", "state": state_of("Ask me: {{q}}")})
    b = replay(service, dataset, project, limit=2)
    compared = service.compare_replays(dataset)
    assert (compared.stable, compared.drift, compared.new, compared.gone) == (0, 2, 0, 1)
    assert [change.node_id for change in compared.rows[0].segments] == ["n"]
    assert [line for line in compared.rows[0].diff if line[0] in "+-"] == ["-Ask: q0", "+Ask me: q0"]
    assert [row.row_index for row in service.compare_replays(dataset, status="gone").rows] == [2]
    one = service.compare_runs(a[1]["runId"], b[1]["runId"])
    assert (one.status, one.a.row_index) == ("drift", 1)


@pytest.mark.req("REPLAY-16")
def test_pieces_are_compared_with_the_same_piece(service: ReplayService) -> None:
    dataset, project = begin(service, rows=4)
    first = replay(service, dataset, project, limit=2)
    replay(service, dataset, project, limit=2, offset=2)
    last = replay(service, dataset, project, limit=2)
    compared = service.compare_replays(dataset)
    assert (compared.a, compared.b) == (first[0]["runId"][:-2], last[0]["runId"][:-2])
    assert (compared.stable, compared.new) == (2, 0)
    swapped = service.compare_replays(dataset, a=compared.b, b=compared.a)
    assert (swapped.a, swapped.b) == (compared.b, compared.a)
    for wrong in ("nope", "../x"):
        with pytest.raises(RequestError, match="there is no replay"):
            service.compare_replays(dataset, a=wrong)


@pytest.mark.req("REPLAY-13")
@pytest.mark.parametrize(
    "id", ["", "x", "x-1", "../x-1", "r1-01", "r1--1", "r1-1\n", "r1-१", "r" * 80, "r1-" + "9" * 30]
)
def test_what_is_no_run(service: ReplayService, id: str) -> None:
    with pytest.raises(RequestError) as caught:
        service.run(id)
    assert caught.value.code == "run_not_found"


@pytest.mark.req("REPLAY-13")
def test_pages_are_checked(service: ReplayService) -> None:
    dataset, _ = begin(service)
    for limit, offset, code in (
        (0, 0, "validation_failed"),
        (1, -1, "validation_failed"),
        (10_001, 0, "limit_exceeded"),
    ):
        for call in (service.projects, service.datasets):
            with pytest.raises(RequestError) as caught:
                call(limit, offset)
            assert caught.value.code == code
        with pytest.raises(RequestError):
            service.runs(dataset, limit=limit, offset=offset)
    with pytest.raises(RequestError, match="succeeded or failed"):
        service.runs(dataset, status="ok")
    assert service.runs(dataset, row_index=10**30) == [] == service.runs(dataset, offset=10**30)


def with_model(tmp_path: Path, rules: str) -> ReplayService:
    (tmp_path / "answers.yaml").write_text(rules, encoding="utf-8")
    path = tmp_path / "evalloom.yaml"
    path.write_text("profiles: {told: {run: scripted:answers.yaml}}\n", encoding="utf-8")
    return ReplayService(tmp_path / "data", settings.load(path))


@pytest.mark.req("REPLAY-17")
def test_model_is_asked_and_its_answer_checked(tmp_path: Path) -> None:
    rules = """rules:
      - {match: {contains: tea}, answer: "Oolong, surely"}
      - {match: {contains: out}, fault: garbage}
      - {answer: no idea}"""
    service = with_model(tmp_path, rules)
    rows = [
        {"q": "which tea?", "_expected": {"mustContain": ["Oolong"], "mustNotContain": ["coffee"]}},
        {"q": "what else?", "_expected": {"equals": "nothing", "regex": "^no"}},
        {"q": "out?"},
        {"variables": 3},
    ]
    dataset = service.create_dataset({"name": "d", "rows": rows})
    project = service.create_project({"name": "p", "state": state_of()})
    plain = replay(service, dataset.id, project.id)
    found = replay(service, dataset.id, project.id, profile="told")
    assert [one["outputDigest"] for one in found] == [one["outputDigest"] for one in plain]
    asked = [service.run(one["runId"]).trace.model for one in found]
    assert asked[0] is not None and asked[1] is not None and asked[2] is not None and asked[3] is None
    assert asked[0].messages == [{"role": "user", "content": "--- User ---\nAsk: which tea?"}]
    assert (asked[0].answer, asked[0].status) == ("Oolong, surely", "passed")
    assert asked[0].answer_digest and asked[0].answer_digest != found[0]["outputDigest"]
    assert [(check.name, check.status) for check in asked[1].checks] == [("equals", "failed"), ("regex", "passed")]
    assert asked[1].status == "failed"
    assert "garbage" in asked[2].error and asked[2].status == "error"
    assert [one["status"] for one in found] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert [one.row_index for one in service.runs(dataset.id, check="failed")] == [2, 1]
    assert [one.row_index for one in service.runs(dataset.id, check="passed", limit=1)] == [0]
    assert service.runs(dataset.id, check="failed", offset=2) == []
    kept = service.replays(dataset.id)[0]
    assert (kept.profile, kept.checks_passed, kept.checks_failed) == ("told", 1, 2)
    service.close()


def test_execute_assembles_once_and_keeps_nothing(service: ReplayService) -> None:
    dataset, project = begin(service)
    for body in ({"projectId": project, "row": {"q": "hi"}}, {"state": state_of(), "row": {"q": "hi"}}):
        assert asyncio.run(service.execute(body)).text == "--- User ---\nAsk: hi"
    assert service.runs(dataset) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *((body, "validation_failed") for body in [*NO_TEXTS, {"projectId": "p", "state": {}}, {"state": 3}]),
        ({"projectId": "nope"}, "project_not_found"),
        ({"state": {"nodes": []}, "row": 3}, "row_invalid"),
        (
            {"state": {"nodes": [{"id": "a", "data": {}}], "edges": [{"source": "a", "target": "a"}]}},
            "dependency_cycle",
        ),
        ({"state": {"nodes": []}, "profile": "nobody"}, "validation_failed"),
    ],
)
def test_what_execute_refuses(service: ReplayService, body: Any, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        asyncio.run(service.execute(body))
    assert caught.value.code == code


@pytest.mark.req("REPLAY-17")
def test_profile_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    service = with_model(tmp_path, "rules: 3")
    dataset, project = begin(service)
    with pytest.raises(RequestError, match="profile") as caught:
        replay(service, dataset, project, profile="told")
    assert caught.value.code == "validation_failed"
    service.close()
