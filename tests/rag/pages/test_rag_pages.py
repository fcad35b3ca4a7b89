"""The pages of RAG batches, in a browser and as JSON."""

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

EXAMPLE = Path(__file__).parents[3] / "examples" / "rag"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e' + "長" * 3000


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "evalloom", *words], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The handbook: retrieved, then answered, then a hostile case in every field."""
    folder = tmp_path_factory.mktemp("rag") / "suite"
    shutil.copytree(EXAMPLE, folder)
    hostile = {
        "id": NASTY[:60],
        "query": NASTY,
        "expected_sources": [NASTY[:60]],
        "must_include": [NASTY[:40]],
        "bucket": "oral",
        "pair_id": NASTY[:50],
        "concept_id": NASTY[:50],
        "tags": [NASTY[:30]],
    }
    (folder / "nasty.jsonl").write_text(json.dumps(hostile) + "\n", "utf-8")
    command(folder, "rag", "retrieve", "nasty.jsonl")
    command(folder, "rag", "retrieve", "eval_cases.jsonl")
    command(folder, "rag", "answer", "eval_cases.jsonl", "--profile", "scripted")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def batches(folder: Path) -> list[str]:
    """The hostile batch, the retrieval, the answers."""
    return sorted(path.name for path in (folder / ".evalloom" / "batches").iterdir())


@pytest.mark.req("WORK-20", "WORK-21", "RAG-9")
def test_the_figures_are_those_of_the_report(server: PageServer, folder: Path, batches: list[str]) -> None:
    reported = json.loads(command(folder, "rag", "report", batches[1], "--json").stdout)
    twin = server.json(f"/rag/b/{batches[1]}")
    profile = reported["profiles"][0]
    measures = {measure["name"]: measure["mean"] for measure in twin["overall"]["measures"]}
    assert measures == pytest.approx(
        {measure["name"]: measure["mean"] for measure in profile["overall"]["measures"]}, abs=1e-6
    )
    assert [gap["gap"] for gap in twin["gaps"]] == pytest.approx(
        [gap["gap"] for gap in profile["pairs"]["gaps"]], abs=1e-6
    )
    assert twin["counts"] == {"failing": 11, "passed": 45, "apart": 0, "all": 56}
    listed = server.json("/rag")
    assert listed["total"] == 3 and listed["batches"][1]["profiles"][0]["overall"]["mean"] == pytest.approx(45 / 56)


@pytest.mark.req("WORK-21", "RAG-11")
def test_a_miss_is_explained_as_by_the_command(server: PageServer, folder: Path, batches: list[str]) -> None:
    case = server.json(f"/rag/b/{batches[1]}?why=not_retrieved")["cases"][0]["case"]
    page = server.json(f"/rag/b/{batches[1]}/r/{case['key']}?why=not_retrieved")
    printed = command(folder, "rag", "explain", case["id"], "--batch", batches[1], "--json").stdout
    assert page["explanation"]["expected"] == json.loads(printed)["expected"]
    assert page["first_hit"] == 0 and page["why"] == "not_retrieved" and page["total"] == 10 and page["next"]
    assert [wording["rank"] for wording in page["wordings"]] == [1]


def test_without_an_index_the_command_is_shown(
    serve_pages: Callable[..., Any], folder: Path, tmp_path: Path, batches: list[str]
) -> None:
    shutil.copytree(folder / ".evalloom" / "batches", tmp_path / ".evalloom" / "batches")
    elsewhere = serve_pages(tmp_path)
    case = elsewhere.json(f"/rag/b/{batches[1]}")["cases"][0]["case"]
    page = elsewhere.get(f"/rag/b/{batches[1]}/r/{case['key']}")
    assert f"evalloom rag explain {case['id']} --batch {batches[1]}" in page


def test_the_expected_texts_are_marked_in_passages(server: PageServer, batches: list[str]) -> None:
    cases = server.json(f"/rag/b/{batches[2]}?show=passed")["cases"]
    page = server.json(f"/rag/b/{batches[2]}/r/{cases[0]['case']['key']}")
    marked = [piece["text"] for passage in page["passages"] for piece in passage["text"] if piece["is_expected"]]
    assert page["texts"][0]["text"] in marked and page["texts"][0]["is_in_answer"] is True
    assert any(piece["is_expected"] for piece in page["answer"])


@pytest.mark.req("WORK-23")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"locale": "zh-CN", "color_scheme": "dark"}, ["口语说法", "没有期望的来源"]),
        ({"viewport": {"width": 390, "height": 800}, "java_script_enabled": False}, ["Oral wordings", "is at place 6"]),
    ],
)
def test_from_the_list_to_why_a_case_missed(
    server: PageServer, visitor: Callable[..., Any], batches: list[str], options: dict[str, Any], shown: list[str]
) -> None:
    somebody = visitor(**options)
    page = somebody.page
    page.goto(f"{server.url}/rag")
    page.click(f"a[href$='/rag/b/{batches[1]}']")
    assert shown[0] in page.inner_text("main")
    page.click(".cases li a")
    assert shown[1] in page.inner_text("main")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth") or options.get("locale")
    if options.get("java_script_enabled", True):
        assert somebody.accessibility() == []
        page.keyboard.press("n")
        page.wait_for_url("**/r/*")
        assert "2 / 11" in page.inner_text("main")


@pytest.mark.req("WORK-24")
def test_texts_of_users_run_nothing(
    server: PageServer, visitor: Callable[..., Any], folder: Path, batches: list[str]
) -> None:
    somebody = visitor(viewport={"width": 390, "height": 800})
    for path in ("/rag", f"/rag/b/{batches[0]}"):
        somebody.page.goto(server.url + path)
        assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 390
    somebody.page.click(".cases li a")
    assert "<script>alert(1)</script>" in somebody.page.inner_text("main")
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert somebody.accessibility() == []


@pytest.mark.parametrize(
    ("path", "code", "status"),
    [
        ("/rag/b/nothing", "batch_not_found", 404),
        ("/rag/b/..%2f..%2fetc", "not_found", 404),
        ("/rag/b/latest/r/%3Cscript%3E", "run_not_found", 404),
        ("/rag/b/latest?profile=x", "validation_failed", 400),
        ("/rag/b/latest?show=x", "validation_failed", 400),
    ],
)
def test_what_is_not_there_is_said(server: PageServer, path: str, code: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        server.json(path)
    assert raised.value.code == status and json.loads(raised.value.read())["error"] == code


def test_a_retrieval_has_no_column_for_outputs(server: PageServer, batches: list[str]) -> None:
    assert "output" not in server.json(f"/b/{batches[1]}")["columns"]
    assert "output" in server.json(f"/b/{batches[1]}?cols=output")["columns"]
    assert "output" in server.json(f"/b/{batches[2]}")["columns"]
