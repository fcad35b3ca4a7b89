"""The pages of pipelines, in a browser and as JSON: the graph of steps, a batch, and one case step by step."""

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

from evalloom.pipeline.pages.graph import GraphStep, draw, levels

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e' + "長" * 3000
HOSTILE = """
id: hostile
steps:
  - {{id: {name}, code_ref: "fails:fail", input_mapping: {{text: text}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, then a pipeline with a hostile name whose only step fails with a hostile message."""
    folder = tmp_path_factory.mktemp("pipeline") / "suite"
    shutil.copytree(EXAMPLE, folder)
    (folder / "hostile.yaml").write_text(HOSTILE.format(name=json.dumps(NASTY[:80])), "utf-8")
    (folder / "fails.py").write_text(f"def fail(text):\n    raise ValueError(text + {NASTY!r})\n", "utf-8")
    (folder / "hostile.jsonl").write_text(json.dumps({"id": "nasty", "inputs": {"text": NASTY}}) + "\n", "utf-8")
    for words in (["--target", "pipeline:hostile.yaml", "hostile.jsonl"], []):
        subprocess.run([sys.executable, "-m", "evalloom", "run", *words], cwd=folder, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def batches(folder: Path) -> list[str]:
    """The hostile batch, and the example."""
    return sorted(path.name for path in (folder / ".evalloom" / "batches").iterdir())


@pytest.mark.req("WORK-20", "WORK-21")
def test_steps_have_times_and_failures(server: PageServer, batches: list[str]) -> None:
    page = server.json(f"/pipeline/b/{batches[1]}")
    steps = {step["id"]: step for step in page["steps"]}
    assert page["worst"] == "analyze_sentiment" and steps["analyze_sentiment"]["first_wrong"] == 1
    assert steps["write_summary"]["needs"] == ["clean_text", "analyze_sentiment"]
    assert steps["analyze_batch"]["skipped"] == 10 and steps["clean_text"]["mean_s"] > 0
    assert [run["case"] for run in page["runs"]] == ["zh_sarcasm"]
    assert server.json(f"/pipeline/b/{batches[1]}?show=all")["total"] == 13
    listed = server.json("/pipeline")
    assert {row["id"] for row in listed["pipelines"]} >= {"review_sentiment", "customer_feedback"}
    assert len(listed["batches"]) == 2


def test_a_case_is_shown_step_by_step(server: PageServer, batches: list[str]) -> None:
    key = server.json(f"/pipeline/b/{batches[1]}")["runs"][0]["run"]
    page = server.json(f"/pipeline/b/{batches[1]}/r/{key}")
    steps = {step["id"]: step for step in page["steps"]}
    wrong = steps["analyze_sentiment"]
    assert wrong["is_first_wrong"] and wrong["status"] == "failed" and wrong["calls"][0]["answer"]["text"] == "positive"
    assert wrong["checks"][0]["reason"] == "expected 'negative', got 'positive'"
    assert steps["analyze_batch"]["status"] == "skipped" and "batch_items" in steps["analyze_batch"]["reason"]
    assert "三天修了两次" in page["inputs"]["text"] and page["position"] == 1


@pytest.mark.req("WORK-23")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"locale": "zh-CN", "color_scheme": "dark"}, ["多数失败始于步骤", "最先出错"]),
        ({"viewport": {"width": 390, "height": 800}, "java_script_enabled": False}, ["Most failures", "went wrong"]),
    ],
)
def test_from_the_list_to_the_step_that_went_wrong(
    server: PageServer, visitor: Callable[..., Any], batches: list[str], options: dict[str, Any], shown: list[str]
) -> None:
    somebody = visitor(**options)
    page = somebody.page
    page.goto(f"{server.url}/pipeline")
    page.click(f"a[href$='/pipeline/b/{batches[1]}']")
    assert shown[0] in page.inner_text("main") and page.locator("svg.graph .node.worst").count() == 1
    page.click(".failures li a")
    assert shown[1] in page.inner_text("main") and page.locator("svg.graph .node").count() == 5
    if "viewport" in options:
        assert page.locator("body").bounding_box()["width"] <= 390
    else:
        assert somebody.accessibility() == []
    page.click("svg.graph a[href='#step-analyze_sentiment']")
    assert page.url.endswith("#step-analyze_sentiment")


@pytest.mark.req("WORK-24")
def test_texts_of_users_run_nothing(server: PageServer, visitor: Callable[..., Any], batches: list[str]) -> None:
    somebody = visitor(viewport={"width": 390, "height": 800})
    page = somebody.page
    for path in ("/pipeline", f"/pipeline/b/{batches[0]}", "/pipeline/file?file=hostile.yaml"):
        page.goto(server.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"{server.url}/pipeline/b/{batches[0]}")
    page.click(".failures li a")
    assert "<script>alert(1)</script>" in page.inner_text("main")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert somebody.accessibility() == []


def test_a_file_is_drawn_with_its_findings(server: PageServer) -> None:
    page = server.json("/pipeline/file?file=reviews/pipelines/customer_feedback.yaml")
    assert len(page["steps"]) == 8 and page["outputs"]
    assert "<svg" in server.get("/pipeline/file?file=reviews/pipelines/customer_feedback.yaml")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/pipeline/b/nothing", "batch_not_found"),
        ("/pipeline/b/latest/r/none", "run_not_found"),
        ("/pipeline/b/latest?profile=x", "validation_failed"),
        ("/pipeline/file?file=../x.yaml", "pipeline_not_found"),
        ("/pipeline/file?file=/etc/passwd", "pipeline_not_found"),
        ("/pipeline/file?file=evalloom.yaml", "pipeline_not_found"),
    ],
)
def test_what_is_not_there_is_said(server: PageServer, path: str, code: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        server.json(path)
    assert json.loads(raised.value.read())["error"] == code


def step(id: str, *needs: str) -> GraphStep:
    return GraphStep(id, list(needs), "", "", "", id)


def test_levels_follow_the_needs_and_a_cycle_ends() -> None:
    steps = [step("c", "a", "b"), step("a"), step("b", "a"), step("x", "y"), step("y", "x"), step("z", "gone")]
    assert [[one.id for one in level] for level in levels(steps)] == [["a", "z"], ["b"], ["c"], ["x", "y"]]
    assert str(draw(steps, "all")).count("<path") == 3
    assert str(draw([], "none")).startswith("<svg")
