"""Trying one case: a form of the prompt's variables, the answers side by side, and saving it as a case."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PageServer, serving

from evalloom.catalog import load
from evalloom.core.model import Case, Check
from evalloom.pages.errors import RequestError
from evalloom.pages.site import Site
from evalloom.settings import Settings
from evalloom.web.save_case import save

EXAMPLE = Path(__file__).parents[2] / "examples" / "first"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("try") / "suite"
    shutil.copytree(EXAMPLE, folder)
    with serving(folder) as server:
        yield server


@pytest.mark.req("WORK-20", "WORK-24")
def test_a_case_is_changed_run_with_two_profiles_and_saved(server: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    page = somebody.page
    page.goto(server.sign_in)
    page.goto(f"{server.url}/try?data=cases.jsonl&case=2")
    assert page.input_value("[name='input.question']") == "When will my parcel arrive?"
    assert somebody.accessibility() == []
    page.fill("[name='input.question']", f"{NASTY}\nWhen will my parcel arrive?")
    page.check("input[value=offline]")
    page.check("input[value=echo]")
    page.fill("#expected", "3 working days")
    page.click("button.primary")
    page.wait_for_selector(".answers", timeout=30_000)
    offline, echo = page.locator(".answers section").all_inner_texts()
    assert "passed" in offline and "It arrives within 3 working days." in offline
    assert "failed" in echo and NASTY in echo and somebody.accessibility() == []
    page.fill("#save-file", "tried.jsonl")
    page.fill("#save-id", "parcel")
    page.click("text=Save as case >> nth=-1")
    page.click(".notice a")
    page.wait_for_selector("#L1")
    saved = json.loads((server.folder / "tried.jsonl").read_text())
    assert saved["id"] == "parcel" and saved["expected_outputs"] == {"output": "contains:3 working days"}
    assert saved["inputs"] == {"question": f"{NASTY}\nWhen will my parcel arrive?"}
    assert server.json("/")["tries"] == 1 and server.json("/")["total"] == 0


@pytest.mark.req("WORK-23")
def test_an_unchanged_case_keeps_its_checks_in_chinese_on_a_phone_without_a_script(
    visitor: Callable[..., Any], server: PageServer
) -> None:
    somebody = visitor(
        locale="zh-CN", java_script_enabled=False, viewport={"width": 390, "height": 800}, color_scheme="dark"
    )
    page = somebody.page
    with serving(server.folder) as own:
        page.goto(own.sign_in)
        page.goto(f"{own.url}/try?data=cases.jsonl&case=5")
        page.click("button.primary")
        while "正在运行" in page.inner_text("main") or "运行中" in page.inner_text("main"):
            page.reload()
        assert "失败" in page.inner_text(".answers") and "contains" in page.inner_text(".answers")
        run = page.locator("text=打开此次运行").get_attribute("href")
        batch, key = run.split("?")[0].split("/")[2], run.split("?")[0].split("/")[4]
        form = own.json(f"/try?batch={batch}&run={key}")["form"]
    assert form["base"]["id"] == "unknown_en" and form["fields"][0]["value"] == "Do you deliver to the Moon?"


CONFIG = """
prompts: ['Say {{word}}{{mark}}', 'Repeat {{word}}']
providers:
  - {id: echo, label: plain}
  - {id: 'python:evil.py', label: code}
defaultTest: {vars: {mark: '!'}}
tests:
  - vars: {word: hello}
    options: {prefix: 'Now: '}
    assert: [{type: contains, value: hello}]
"""


@pytest.mark.req("WORK-20", "WORK-30")
def test_a_case_of_a_promptfoo_config_runs_with_a_column_of_it(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    (tmp_path / "evil.py").write_text("def call_api(prompt, options, context):\n    return {'output': prompt}\n")
    server, somebody = serve_pages(tmp_path), visitor()
    page = somebody.page
    page.goto(server.sign_in)
    page.goto(f"{server.url}/data/promptfooconfig.yaml?view=cases")
    page.click("td >> text=Try")
    assert page.input_value("#target") == "suite:promptfooconfig.yaml"
    assert page.locator("input[name=profile][value='code@prompt 1']").is_disabled()
    assert "--allow-code" in page.inner_text("main") and somebody.accessibility() == []
    page.check("input[value='plain@prompt 1']")
    page.click("button.primary")
    page.wait_for_selector(".answers", timeout=30_000)
    assert "passed" in page.inner_text(".answers") and "Now: Say hello!" in page.inner_text(".answers")
    assert page.is_checked("input[value='plain@prompt 1']")
    page.fill("[name='input.word']", "goodbye")
    page.fill("#expected", "bye")
    page.click("button.primary")
    page.wait_for_selector(".answers >> text=goodbye", timeout=30_000)
    # The options of the test stay when its variables change.
    assert "Now: Say goodbye!" in page.inner_text(".answers") and "passed" in page.inner_text(".answers")
    page.click("summary:has-text('Steps and model calls')")
    assert "[user]\nNow: Say goodbye!" in page.inner_text(".answers details")
    page.fill("#save-id", "bye")
    page.click("text=Save as case >> nth=-1")
    page.wait_for_selector(".notice a")
    assert json.loads((tmp_path / "tried.jsonl").read_text())["vars"] == {"word": "goodbye", "mark": "!"}
    page.click("text=Open the run")
    assert server.json("/try?target=suite:promptfooconfig.yaml")["form"]["base"]["inputs"]["word"] == "hello"


def test_code_of_a_promptfoo_config_runs_where_the_server_allows_it(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    (tmp_path / "evil.py").write_text("def call_api(prompt, options, context):\n    return {'output': prompt + '?'}\n")
    server, page = serve_pages(tmp_path, "view", "--no-browser", "--allow-code"), visitor().page
    page.goto(server.sign_in)
    page.goto(f"{server.url}/try?data=promptfooconfig.yaml")
    page.check("input[value='code@prompt 2']")
    page.click("button.primary")
    page.wait_for_selector(".answers", timeout=30_000)
    assert "Now: Repeat hello?" in page.inner_text(".answers")


def test_a_target_that_is_code_is_not_imported_for_its_form(server: PageServer) -> None:
    (server.folder / "evil.py").write_text("open('ran', 'w').close()\ndef answer(question): return question\n")
    fields = server.json("/try?target=python:evil:answer&data=cases.jsonl")["form"]["fields"]
    assert [field["name"] for field in fields] == ["question"] and not (server.folder / "ran").exists()


# -- saving ----------------------------------------------------------------------------------------------

CASE = Case("new", {"question": "q"}, (Check("contains", "a"),))


def test_a_folder_without_a_target_says_what_to_do(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    server, page = serve_pages(tmp_path), visitor().page
    page.goto(f"{server.url}/try")
    assert "evalloom init" in page.inner_text("main")
    (tmp_path / "ask.yaml").write_text("system: Answer.\nuser: '{{question}}'\n")
    # The answers of a scripted model have placeholders, too.
    (tmp_path / "answers.yaml").write_text("rules:\n  - answer: {template: '{{question}}'}\n")
    page.goto(f"{server.url}/try")
    assert page.locator(".empty li").all_inner_texts() == ["prompt:ask.yaml"]
    page.click("text=prompt:ask.yaml")
    assert page.locator("[name='input.question']").count() == 1


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(load(), Settings(), home=tmp_path)
    yield site
    site.close()


def test_a_case_is_appended_and_no_line_changes(site: Site) -> None:
    path = site.home / "cases.jsonl"
    path.write_bytes(b'{"id": "a",  "question": "x", "expected_output": "y"}\r\n{"id":"b","question":"z"}')
    before = path.read_bytes()
    assert save(site, "cases.jsonl", CASE).line == 3
    assert path.read_bytes().startswith(before + b"\n")
    assert json.loads(path.read_text().splitlines()[2])["id"] == "new"
    with pytest.raises(RequestError, match="line 3 has the id 'new' already"):
        save(site, "cases.jsonl", CASE)


def test_what_the_format_cannot_hold_is_refused_and_nothing_is_written(site: Site) -> None:
    path = site.home / "hop.jsonl"
    path.write_text('{"id": 1, "tag": "t", "task": "x", "hop_result": {}}\n{"id": 2, "tag": "t", "hop_result": {}}\n')
    before = path.read_bytes()
    with pytest.raises(RequestError, match="cannot hold this case"):
        save(site, "hop.jsonl", CASE)
    (site.home / "own.jsonl").write_text('{"id": "a", "inputs": {"q": "x"}, "expected_outputs": {"output": "y"}}\n')
    with pytest.raises(RequestError, match="as another check"):
        save(site, "own.jsonl", Case("e", {"q": "a"}, (Check("equals", "contains:a"),)))
    assert (site.home / "own.jsonl").read_text().count("\n") == 1
    assert path.read_bytes() == before


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize(
    "name",
    [
        "../x.jsonl",
        "/tmp/x.jsonl",
        "evalloom.yaml",
        "a.py",
        ".env",
        ".x.jsonl",
        "no/such/x.jsonl",
        "x\0.jsonl",
        "link.jsonl",
        "",
    ],
)
def test_a_case_is_saved_only_in_a_jsonl_file_of_the_project(site: Site, name: str) -> None:
    (site.home / "link.jsonl").symlink_to(site.home.parent / "elsewhere.jsonl")
    with pytest.raises(RequestError):
        save(site, name, CASE)
    assert [file.name for file in site.home.iterdir()] == ["link.jsonl"] and not (
        site.home.parent / "elsewhere.jsonl"
    ).exists()
