"""The tasks, their batches, and the figures of their results in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("HOP-21")
EXAMPLE = Path(__file__).parents[3] / "examples" / "hop"
TASK = "/hop/checks/hallucination"


def figures_of(project: Path, *words: str) -> Any:
    """What the command line says about the same results."""
    command = [sys.executable, "-m", "evalloom", "stats", "checks/hallucination", *words, "--json"]
    return json.loads(subprocess.run(command, cwd=project, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(
    "options", [{}, {"locale": "zh-CN", "color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}]
)
def test_every_view_can_be_read(server: Any, signed_in: Callable[..., Any], options: dict[str, Any]) -> None:
    somebody = signed_in(**options)
    kind = "zh" if "locale" in options else "phone" if options else "en"
    for path in ("/hop", *(f"{TASK}/{tab}" for tab in ("batch", "history", "stats", "perf")), "/hop/credit/history"):
        somebody.page.goto(server.url + path)
        somebody.picture(f"hop-{path.strip('/').replace('/', '-')}-{kind}")
        assert somebody.accessibility() == [], path
        assert somebody.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_the_figures_are_those_of_the_command_line(server: Any, project: Path) -> None:
    stats = figures_of(project)
    shown = server.json(f"{TASK}/stats")
    assert shown["stats"] == {
        name: value for name, value in stats.items() if name[:3] != "by_" and name != "performance"
    }
    by_tag = {row["name"]: row["figures"]["pass_rate"] for row in shown["groups"]["tag"]}
    assert by_tag == {name: group["pass_rate"] for name, group in stats["by_tag"].items()}
    assert server.json(f"{TASK}/perf")["perf"] == stats["performance"]
    hasty = figures_of(project, "--profile", "hasty")
    assert server.json(f"{TASK}/stats?profile=hasty")["stats"]["pass_rate"] == hasty["pass_rate"]
    history = server.json(f"{TASK}/history?correct=false&file=*")
    assert history["figures"]["pass_rate"] == stats["pass_rate"] and 0 < history["total"] < stats["total"]


def test_a_record_leads_to_its_run_and_a_group_to_its_records(server: Any, signed_in: Callable[..., Any]) -> None:
    page = signed_in().page
    page.goto(f"{server.url}{TASK}/stats")
    page.click("section[aria-labelledby=by-tag] td a >> nth=0")
    assert "correct = false" in page.inner_text(".hop-filters") and page.locator(".unequal").count() > 0
    page.goto(f"{server.url}{TASK}/history")
    page.keyboard.press("j")
    assert "/b/" in page.get_attribute(".is-current [data-open]", "href")
    page.keyboard.press("f")
    page.wait_for_url("**correct=false**")
    page.click(".hop-record details summary >> nth=0")
    page.click("text='Run this input again' >> nth=0")
    assert page.input_value("[name='in.model_output']")


def test_a_batch_writes_a_new_file_in_the_wrapper_of_the_page(
    server: Any, signed_in: Callable[..., Any], project: Path
) -> None:
    folder = project / "checks" / "hallucination" / "TestCases"
    before = {path.name: path.read_bytes() for path in folder.glob("*_results_*")}
    page = signed_in().page
    page.goto(f"{server.url}{TASK}/batch")
    assert "hallucination_cases.jsonl (24 records)" in page.inner_text("#file")
    assert (page.input_value("#workers"), page.get_attribute("#workers", "max")) == ("5", "20")
    page.uncheck("[value=hasty]")
    page.click("text='Start batch'")
    page.wait_for_selector(".hop-done", timeout=30_000)
    assert "Done: hallucination_cases_results_" in page.inner_text(".hop-done")
    after = {path.name: path.read_bytes() for path in folder.glob("*_results_*")}
    assert {name: after[name] for name in before} == before and len(after) == len(before) + 1
    (written,) = after.keys() - before.keys()
    rows = [json.loads(line) for line in after[written].splitlines()]
    assert [row["_type"] for row in rows if "_type" in row] == ["meta"] and len(rows) == 25
    assert all(isinstance(row["result"], str) and "expected_hallucination_type" in row["input"] for row in rows[1:])
    page.click(".hop-done a >> nth=0")
    assert page.locator(".hop-record a[href*='/b/']").count() == 24


def test_a_batch_of_other_words_is_refused(server: Any, session: Any) -> None:
    from tests.hop.pages.test_execute import post

    cookie = "; ".join(f"{each['name']}={each['value']}" for each in session["cookies"])
    for body in (
        {"file": "../x.jsonl"},
        {"file": "hallucination_cases.jsonl", "workers": "21"},
        {"profiles": "--force"},
    ):
        refused = post(server, f"/api{TASK}/batch", cookie, {"file": "hallucination_cases.jsonl", **body})
        assert refused["error"] == "validation_failed", refused


def test_links_out_of_the_project_are_refused(server: Any, project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"id": 1, "hop_result": "{}"}\n')
    link = project / "credit" / "TestCases" / "link.jsonl"
    link.symlink_to(tmp_path / "secret.jsonl")
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.get("/hop/credit/history")
        assert refused.value.code == 403
    finally:
        link.unlink()


def test_a_folder_without_tasks_says_how_to_start(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    assert "evalloom init --dialect hop" in serve_pages(tmp_path).get("/hop")


def test_the_start_page_shows_the_last_batch_of_a_task(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(EXAMPLE, home / "task")
    command = [sys.executable, "-m", "evalloom", "run", "home/task/TestCases/hallucination_cases.jsonl", "--target"]
    (tmp_path / "p.txt").write_text("{{context_window}}")
    subprocess.run([*command, "prompt:p.txt", "--profile", "echo"], cwd=tmp_path, capture_output=True)
    # A batch names its files as the command line did, here in a folder above.
    shutil.move(tmp_path / ".evalloom", home)
    (task,) = serve_pages(home).json("/hop")["tasks"]
    assert task["last"] is None and task["batch"]["target"] == "prompt:p.txt"
