"""Starting a batch from the page: the form, the equal command line, the estimate, and values that are refused."""

from __future__ import annotations

import json
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PageServer, serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "first"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("run") / "suite"
    shutil.copytree(EXAMPLE, folder)
    (folder / "--force.jsonl").write_text(json.dumps({"id": "a", "question": "b", "expected_output": "c"}) + "\n")
    with serving(folder) as server:
        yield server


def form(server: PageServer, **fields: Any) -> Any:
    return server.json(f"/run?{urllib.parse.urlencode(fields, doseq=True)}")


@pytest.mark.req("WORK-22", "WORK-23")
def test_the_command_follows_the_form_and_starts_a_batch(server: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    page = somebody.page
    page.goto(server.sign_in)
    page.goto(f"{server.url}/data/cases.jsonl")
    page.click("text=Run this file")
    page.check("input[value=offline]")
    page.check("input[value=echo]")
    page.fill("#tags", "zh")
    page.wait_for_selector("text=4 runs")
    command = page.inner_text(".command code")
    assert command == "evalloom run cases.jsonl --profile offline --profile echo --tags zh"
    assert "tags=zh" in page.url and somebody.accessibility() == []
    page.click("text=Estimate the cost")
    page.wait_for_selector("text=free")
    page.click("button.primary")
    page.wait_for_url("**/b/*")
    assert server.json("/")["batches"][0]["batch"]["profiles"] == ["offline", "echo"]


def test_a_promptfoo_config_runs_without_a_target(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLE.parent / "promptfoo", tmp_path / "suite")
    server, page = serve_pages(tmp_path / "suite"), visitor().page
    chosen = form(server, data="promptfooconfig.yaml", profile="terse", repeat="3")
    assert chosen["columns"] == ["terse@short", "terse@chat"] and chosen["runs"] == 5 * 2 * 3
    assert "expected assistant, terse, echo" in form(server, data="promptfooconfig.yaml", profile="other")["problem"]
    page.goto(server.sign_in)
    page.goto(f"{server.url}/data/promptfooconfig.yaml")
    page.click("text=Run this file")
    assert page.inner_text(".command code") == "evalloom run promptfooconfig.yaml"
    assert "20 runs" in page.inner_text("main") and "4 columns: assistant@short, " in page.inner_text("main")
    page.click("button.primary")
    page.wait_for_url("**/b/*")
    page.wait_for_selector("text=18 of 20 passed")


@pytest.mark.req("WORK-23")
def test_without_a_script_the_server_updates_the_command(server: PageServer, visitor: Callable[..., Any]) -> None:
    page = visitor(java_script_enabled=False, locale="zh-CN", viewport={"width": 390, "height": 800}).page
    page.goto(f"{server.url}/run?data=cases.jsonl")
    page.fill("#limit", "2")
    page.click("text=更新命令")
    assert "evalloom run cases.jsonl --limit 2" in page.inner_text("main") and "2 次运行" in page.inner_text("main")


@pytest.mark.req("WORK-24")
def test_a_value_cannot_become_a_flag(server: PageServer) -> None:
    words = form(server, data="--force.jsonl", tags="--resume", target="prompt:prompt.md")["words"]
    assert words == ["run", "./--force.jsonl", "--target", "prompt:prompt.md", "--tags=--resume"]


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize(
    "fields",
    [
        {"data": "../x.jsonl"},
        {"data": "/etc/passwd"},
        {"data": ".env"},
        {"target": "prompt:/etc/passwd"},
        {"target": "prompt:../secret.md"},
        {"target": "prompt:.env"},
        {"target": "nothing"},
        {"target": "prompt:a\nb"},
        {"profile": "scripted:/etc/passwd"},
        {"judge": "nobody"},
        {"limit": "0"},
        {"limit": "9" * 4000},
        {"repeat": "-1"},
        {"concurrency": "1e3"},
        {"tags": "a\x00b"},
        {"encoding": "x" * 2000},
    ],
)
def test_a_wrong_value_gives_a_sentence_and_no_command(server: PageServer, fields: dict[str, str]) -> None:
    shown = form(server, **fields)
    assert shown["problem"] and shown["words"] == []


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize("target", ["python:os:getcwd", "Python:os:getcwd", " command:id", "COMMAND:id"])
def test_code_that_the_settings_do_not_name_is_not_started(
    server: PageServer, serve_pages: Callable[..., Any], visitor: Callable[..., Any], target: str
) -> None:
    # The server ends after the browser, which may be loading something still.
    own, somebody = serve_pages(server.folder), visitor()
    somebody.page.goto(own.sign_in)
    answer = somebody.context.request.post(
        f"{own.url}/api/run", data={"target": target, "data": "cases.jsonl"}, headers={"Origin": own.url}
    )
    assert answer.status == 403 and answer.json()["error"] == "not_allowed_here"
