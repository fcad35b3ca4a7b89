"""The pages of replays in a browser: create, replay, read a trace, edit, compare, delete."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PageServer, serving
from tests.replay.pages.conftest import EXAMPLE

pytestmark = pytest.mark.req("REPLAY-19")
NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\u202eb\x00\x07",
    "W" * 200_000,
    "مرحبا {{x}}",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """The example, replayed once on the command line."""
    folder = tmp_path_factory.mktemp("replay") / "suite"
    shutil.copytree(EXAMPLE, folder)
    command = [sys.executable, "-m", "evalloom", "replay", "--project", "project.json", "--dataset", "rows.jsonl"]
    subprocess.run([*command, "--profile", "offline"], cwd=folder, capture_output=True)
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def signed_in(server: PageServer, chromium: Any) -> Any:
    """The cookies of a session; the address that opens one works once."""
    context = chromium.new_context()
    context.new_page().goto(server.sign_in)
    state = context.storage_state()
    context.close()
    return state


def create(page: Any, server: PageServer, what: str, **fields: str) -> str:
    """Create a project or a dataset by its form; return the path of its page."""
    page.goto(f"{server.url}/replay?new={what}")
    for name, value in fields.items():
        page.fill(f"[name={name}]", value)
    page.click("#new button.primary")
    return str(page.url).removeprefix(server.url).partition("?")[0]


@pytest.mark.parametrize("script", [True, False])
def test_create_replay_edit_and_see_the_change(
    server: PageServer, visitor: Callable[..., Any], signed_in: Any, script: bool
) -> None:
    somebody = visitor(storage_state=signed_in, java_script_enabled=script)
    page = somebody.page
    project = create(page, server, "project", file="project.json", name=f"Desk {script}")
    assert "Nodes in the order of assembly" in page.inner_text("main")
    assert page.url.startswith(f"{server.url}{project}")
    create(page, server, "dataset", file="rows.jsonl", name=f"Questions {script}")
    page.click("form.replay-form button")
    assert "27 succeeded" in page.inner_text(".headline") and "3 failed" in page.inner_text(".headline")
    page.click("text=Edit the recipe")
    page.click("#node-4 >> text=Edit")
    page.fill("textarea[name=content]", "Please: {{question}}")
    page.click("text=Save and replay")
    assert "/compare?" in page.url and "29 drift" in page.inner_text(".headline")
    assert page.locator("ins").first.inner_text() == "Please: "
    somebody.picture(f"replay-drift-{script}")
    page.click("text=Row 0")
    assert "User changed: template" in page.inner_text("main")


@pytest.mark.req("WORK-23")
@pytest.mark.parametrize(
    ("locale", "words"), [("en-US", "Failed first in segment 2:"), ("zh-CN", "首个失败的片段（第 2 段）：")]
)
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_all_views_in_both_languages(
    server: PageServer, visitor: Callable[..., Any], locale: str, words: str, width: int, scheme: str
) -> None:
    """Of replays that the command made, read without a session."""
    somebody = visitor(locale=locale, color_scheme=scheme, viewport={"width": width, "height": 900})
    page, replay = somebody.page, server.json("/replay/project/rows")["replay"]["replayId"]
    run = f"/replay/run/{replay}-17?show=failed"
    paths = ["/replay", "/replay/project", "/replay/project/rows", "/replay/project/rows?tab=replays", run]
    paths += [f"/replay/compare?a={replay}-0&b={replay}-5", "/replay/project/rows/compare"]
    for path in paths:
        page.goto(server.url + path)
        assert somebody.accessibility() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        somebody.picture(f"replay-{width}-{locale}-{path.replace('/', '_').partition('?')[0]}")
        if path == run:
            assert words in page.inner_text("main")
    assert page.locator("form[method=post]").count() == 0


@pytest.mark.req("WORK-23")
def test_rows_are_walked_by_keyboard(server: PageServer, visitor: Callable[..., Any]) -> None:
    page = visitor().page
    page.goto(f"{server.url}/replay/project/rows")
    page.keyboard.press("f")
    page.wait_for_url("**show=failed")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/replay/run/*-16?show=failed")
    page.keyboard.press("n")
    page.wait_for_url("**/replay/run/*-17?show=failed")
    page.click("text=Memory >> nth=0")
    assert page.url.endswith("#segment-2")


def test_a_model_answer_is_shown_with_its_checks(server: PageServer, visitor: Callable[..., Any]) -> None:
    page, replay = visitor().page, server.json("/replay/project/rows")["replay"]["replayId"]
    page.goto(f"{server.url}/replay/run/{replay}-5")
    text = page.inner_text("section:has(#answer)")
    assert "offline" in text and "equals" in text and "expected 'No', got 'No.'" in text


@pytest.mark.req("WORK-24")
def test_nothing_in_the_data_runs_or_breaks_a_page(
    server: PageServer, visitor: Callable[..., Any], signed_in: Any
) -> None:
    page = visitor(storage_state=signed_in).page
    nodes = [
        {"id": f"n{at} {text[:90]}", "data": {"label": text, "content": f"{text} {{{{ {text[:50]} }}}}"}}
        for at, text in enumerate(NASTY)
    ]
    variables = [{"id": text[:99], "name": text[:99], "value": text, "type": "static"} for text in NASTY[:3]]
    recipe = json.dumps({"name": NASTY[0], "state": {"nodes": nodes, "variables": variables}})
    project = create(page, server, "project", text=recipe)
    create(page, server, "dataset", text="\n".join(json.dumps({"q": text, text[:60]: text}) for text in NASTY))
    page.click("form.replay-form button")
    view = server.json(page.url.removeprefix(server.url))
    assert view["counts"]["succeeded"] == len(NASTY)
    replay, pair = view["replay"]["replayId"], f"{project}/{view['dataset_id']}"
    runs = [f"/replay/run/{replay}-{row}" for row in range(len(NASTY))]
    for path in ["/replay", project, f"{project}?delete=1", f"{pair}?tab=preview", f"{pair}?delete=1", *runs]:
        page.goto(server.url + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.locator("img, main script").count() == 0
    page.goto(f"{server.url}/replay/compare?a={replay}-0&b={replay}-3")
    page.goto(f"{server.url}{project}?delete=1")
    page.click("text=Delete the project")
    assert page.url == f"{server.url}/replay"


@pytest.mark.req("WORK-24")
def test_a_write_needs_a_session(server: PageServer, visitor: Callable[..., Any]) -> None:
    request = visitor().page.request
    for path in ("/replay", "/replay/project", "/replay/project/rows"):
        answer = request.post(f"{server.url}/api{path}", data={"create": "project", "do": "delete"})
        assert answer.status == 403 and answer.json()["error"] == "session_needed"


def test_an_empty_folder_says_what_to_type(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    server, page = serve_pages(tmp_path), visitor().page
    page.goto(f"{server.url}/replay")
    text = page.inner_text("main")
    assert "evalloom replay --project project.json --dataset rows.jsonl" in text
    assert server.json("/replay")["projects"] == []


def test_files_are_replayed_again_with_the_command_of_the_page(server: PageServer, visitor: Callable[..., Any]) -> None:
    page = visitor().page
    command = "evalloom replay --project project.json --dataset rows.jsonl --profile offline"
    for path in ("/replay/project", "/replay/project/rows", "/replay/project/rows/compare"):
        page.goto(f"{server.url}{path}")
        assert page.inner_text(".command code") == command
    (server.folder / "rows.jsonl").rename(server.folder / "moved.jsonl")
    page.goto(f"{server.url}/replay/project/rows")
    assert page.locator(".command").count() == 0
    (server.folder / "moved.jsonl").rename(server.folder / "rows.jsonl")
