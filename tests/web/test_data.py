"""Files in a browser: the list, the findings at their lines, the cases."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PageServer, serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "first"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """The first example with a batch, and files with errors and the nastiest names and texts."""
    folder = tmp_path_factory.mktemp("files") / "suite"
    shutil.copytree(EXAMPLE, folder)
    subprocess.run([sys.executable, "-m", "evalloom", "run"], cwd=folder, capture_output=True)
    rows = [{"id": f"c{n}", "question": NASTY, "tags": [NASTY]} for n in range(250)]
    lines = [json.dumps(row) for row in rows]
    lines[150] = "{broken"
    (folder / "bad.jsonl").write_text("\n".join(lines))
    (folder / "a?b#c %41&d.jsonl").write_text(json.dumps({"id": "odd", "question": "w" * 200_000}) + "\n")
    (folder / "gbk.jsonl").write_bytes(
        json.dumps({"id": "a", "q": "下单以后多久能收到" * 5}, ensure_ascii=False).encode("gbk")
    )
    with serving(folder) as server:
        yield server


@pytest.mark.req("WORK-20", "WORK-23", "WORK-24")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"locale": "en-US"}, "no errors"),
        ({"locale": "zh-CN", "color_scheme": "dark", "viewport": {"width": 390, "height": 800}}, "没有错误"),
        ({"java_script_enabled": False}, "no errors"),
    ],
)
def test_the_list_leads_to_a_file_and_its_findings(
    server: PageServer, visitor: Callable[..., Any], options: dict[str, Any], shown: str
) -> None:
    somebody = visitor(**options)
    page = somebody.page
    page.goto(f"{server.url}/data")
    assert shown in page.inner_text("main") and "bad.jsonl" in page.inner_text("main")
    page.click("text=bad.jsonl")
    page.click(".findings a")
    assert "json_parse_error" in page.inner_text("#L151") and page.url.endswith("#L151")
    if options.get("java_script_enabled", True):
        assert somebody.accessibility() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.req("WORK-21")
def test_a_link_to_a_line_opens_the_page_that_has_it(server: PageServer, visitor: Callable[..., Any]) -> None:
    page = visitor().page
    page.goto(f"{server.url}/data/bad.jsonl#L240")
    page.wait_for_selector("#L240")
    assert "line=240" in page.url


@pytest.mark.req("WORK-21", "WORK-24")
def test_a_name_with_every_special_sign_and_a_long_line(server: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor(viewport={"width": 390, "height": 800})
    page = somebody.page
    page.goto(f"{server.url}/data")
    page.click("a[data-open]:has-text('a?b#c')")
    page.click("text=Show all")
    assert "w" * 100_000 in page.inner_text("#L1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("text=中文")
    assert "所有行" in page.inner_text("main") and "w" * 1000 in page.inner_text("#L1")


def test_the_cases_are_a_table_and_batches_are_linked(server: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    somebody.page.goto(f"{server.url}/data/cases.jsonl?view=cases")
    assert "contains '3 个工作日'" in somebody.page.inner_text(".cases") and somebody.accessibility() == []
    batch = server.json("/")["batches"][0]["batch"]["id"]
    assert batch in somebody.page.inner_text(".file-side")
    somebody.page.keyboard.press("j")
    somebody.page.keyboard.press("Enter")
    somebody.page.wait_for_url("**/try?**")


@pytest.mark.req("WORK-21")
def test_the_twins_say_what_validate_and_inspect_say(server: PageServer) -> None:
    files = {file["path"]: file["report"] for file in server.json("/data")["files"]}
    assert files["cases.jsonl"]["cases"] == 5 and files["cases.jsonl"]["tags"] == {"en": 3, "zh": 2, "no-answer": 1}
    assert files["bad.jsonl"]["errors"] == 1 and "answers.yaml" not in files
    printed = subprocess.run(
        [sys.executable, "-m", "evalloom", "validate", "bad.jsonl"], cwd=server.folder, capture_output=True, text=True
    )
    finding = server.json("/data/bad.jsonl")["findings"][0]
    assert f"bad.jsonl:151:2: {finding['message']} [json_parse_error]" in printed.stdout + printed.stderr
    second = server.json("/data/bad.jsonl?view=cases&page=2")
    assert [case["line"] for case in second["cases"]][:2] == [51, 52] and second["pages"] == 5


def test_another_encoding_is_read_when_it_is_named(server: PageServer) -> None:
    assert "GB18030" in server.json("/data/gbk.jsonl")["refusal"]
    read = server.json("/data/gbk.jsonl?encoding=gb18030")
    assert "下单" in read["lines"][0]["line"]["text"] and read["report"]["errors"] == 0


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize(
    "path",
    [
        "/data/../evalloom.yaml/..",
        "/data/%2e%2e/x",
        "/data/%00",
        "/data/.evalloom",
        "/data//etc/passwd",
        "/data/" + "a" * 5000,
    ],
)
def test_a_hostile_path_is_not_found(server: PageServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        server.get(path)
    assert raised.value.code == 404


def test_a_case_of_another_file_leads_to_its_line_there(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text("prompts: ['{{q}}']\nproviders: [echo]\ntests: [file://more.csv]\n")
    (tmp_path / "more.csv").write_text("q,__expected,__description\nhello,hello,A greeting\n")
    server, page = serve_pages(tmp_path), visitor().page
    page.goto(f"{server.url}/data/promptfooconfig.yaml?view=cases")
    assert "A greeting" in page.inner_text("tbody")
    page.click("text=more.csv:2")
    assert page.url.endswith("/data/more.csv?line=2#L2")


def test_times_are_words_once_the_page_is_shown(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "q": "x", "expected_output": "x"}\n')
    server, page = serve_pages(tmp_path), visitor().page
    page.goto(f"{server.url}/data")
    page.wait_for_selector("time:text-matches('ago|now')")
    assert page.is_visible("[data-help]")
