"""The pages of prompt-eval, in a browser and as JSON: scorecard, one case, and scores by people."""

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

EXAMPLE = Path(__file__).parents[3] / "examples" / "prompt-eval"
RESULTS = "prompt-eval-results"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e' + "長" * 3000


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = ("prompt-eval", *words)
    return subprocess.run([sys.executable, "-m", "evalloom", *words], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, and a copy of its results with hostile texts in every field."""
    folder = tmp_path_factory.mktemp("prompts") / "suite"
    shutil.copytree(EXAMPLE, folder)
    command(folder, "all", "prompt_a.md")
    cases = json.loads((folder / RESULTS / "final_scored_results.json").read_text("utf-8"))[:3]
    for case in cases:
        case |= {"test_description": NASTY, "input": {NASTY[:50]: NASTY}, "result_aftertest": NASTY}
        case |= {name: NASTY for name in case if name.endswith("_reason")}
    nasty = folder / 'x"><b>'
    nasty.mkdir()
    (nasty / "final_scored_results.json").write_text(json.dumps(cases), "utf-8")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as server:
        yield server


@pytest.mark.req("WORK-20", "WORK-21", "EVAL-14")
def test_the_figures_are_those_of_the_report(server: PageServer, folder: Path) -> None:
    reported = command(folder, "report", RESULTS).stdout
    card = server.json(f"/prompt-eval/results?folder={RESULTS}")
    assert (card["passed"], card["rated"], card["bad"], card["failed"]) == (26, 36, 14, 1)
    assert "26 of 36 cases" in reported and "14 bad cases" in reported
    assert sum(cause["total"] for cause in card["causes"]) == 14 and len(card["safety"]) == 3
    listed = server.json("/prompt-eval")["evaluations"]
    assert {row["folder"]: row["passed"] for row in listed}[RESULTS] == 26


def test_a_plan_without_scores_says_what_to_do_in_both_languages(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "prompts")
    with serving(tmp_path) as server:
        for language, text in (("en", "Not scored yet"), ("zh", "尚未评分")):
            page = server.get(f"/prompt-eval?lang={language}", Accept="text/html")
            assert text in page and "evalloom prompt-eval run prompts" in page


def test_filters_choose_cases(server: PageServer) -> None:
    address = f"/prompt-eval/results?folder={RESULTS}"
    assert server.json(f"{address}&show=bad")["total"] == 14
    assert server.json(f"{address}&show=bad&category=i18n")["total"] == 3
    assert all(row["scores"]["TP4"] == 1 for row in server.json(f"{address}&point=TP4")["listed"])


@pytest.mark.req("WORK-22", "EVAL-16")
def test_a_person_scores_cases_and_the_agreement_follows(
    server: PageServer, visitor: Callable[..., Any], folder: Path
) -> None:
    somebody = visitor(java_script_enabled=False)
    page = somebody.page
    page.goto(server.sign_in)
    page.goto(f"{server.url}/prompt-eval/results?folder={RESULTS}")
    page.click("text=Score cases yourself")
    page.click("section:has(#cases) .group-list li a >> nth=0")
    assert page.locator(".scored .m3").count() == 0  # the scores of the judge are hidden
    for score in ("3", "2"):
        page.check(f"input[name=human_TP3_score][value='{score}']")
        page.fill("textarea", "close")
        if score == "3":
            page.fill("input[name=reviewer]", "Ann 王")
        page.click("text=Save and go on")
    stored = json.loads((folder / RESULTS / "human_scores.json").read_text("utf-8"))
    assert stored["TC001"]["scores"] == {"TP3": 3} and stored["TC002"]["reviewer"] == "Ann 王"
    assert "TC003" in page.inner_text("h1")
    card = server.json(f"/prompt-eval/results?folder={RESULTS}")
    assert card["agreement"][0]["cases"] == 2 and card["reviewed"] == 2
    # What the page stored is what the command reads, and what it imports is never changed by the page.
    (folder / "review.csv").write_text("test_id,human_TP1_score\nTC005,2\n")
    assert command(folder, "import-review", "review.csv").returncode == 0
    assert "was imported" in page.goto(f"{server.url}/prompt-eval/case?folder={RESULTS}&id=TC005").text()
    page.goto(f"{server.url}/prompt-eval/case?folder={RESULTS}&id=TC001")
    page.fill("input[name=reviewer]", "Bob")
    page.check("input[name=human_TP3_score][value='1']")
    somebody.page.click("button[value=stay]")
    assert "stays as it is" in page.inner_text("main")
    somebody.problems.clear()  # the answer 400 is noted as one
    assert json.loads((folder / RESULTS / "human_scores.json").read_text("utf-8"))["TC001"]["scores"] == {"TP3": 3}


@pytest.mark.req("WORK-23")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"locale": "zh-CN", "color_scheme": "dark"}, "安全失败"),
        ({"viewport": {"width": 390, "height": 800}}, "Safety failures"),
    ],
)
def test_the_scorecard_in_both_languages(
    server: PageServer, visitor: Callable[..., Any], options: dict[str, Any], shown: str
) -> None:
    somebody = visitor(**options)
    somebody.page.goto(f"{server.url}/prompt-eval/results?folder={RESULTS}")
    assert shown[:2] in somebody.page.inner_text("main")
    assert somebody.accessibility() == []
    somebody.page.keyboard.press("j")
    somebody.page.keyboard.press("Enter")
    somebody.page.wait_for_url("**/prompt-eval/case?*")
    assert somebody.accessibility() == []
    width = options.get("viewport", {"width": 1440})["width"]
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.req("WORK-24")
def test_texts_of_users_run_nothing(server: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor(viewport={"width": 390, "height": 800})
    somebody.page.goto(f"{server.url}/prompt-eval")
    somebody.page.click('text=x"><b>')
    assert "<script>alert(1)</script>" in somebody.page.inner_text("main")
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 390
    somebody.page.click(".group-list li a >> nth=0")
    assert "<script>alert(1)</script>" in somebody.page.inner_text("main")
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/prompt-eval/results?folder=..", "evaluation_not_found"),
        ("/prompt-eval/results?folder=/etc", "evaluation_not_found"),
        ("/prompt-eval/results?folder=%00", "evaluation_not_found"),
        (f"/prompt-eval/case?folder={RESULTS}&id=TC999", "case_not_found"),
        (f"/prompt-eval/results?folder={RESULTS}&show=x", "validation_failed"),
    ],
)
def test_what_is_not_there_is_said(server: PageServer, path: str, code: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        server.json(path)
    assert json.loads(raised.value.read())["error"] == code


def test_a_link_out_of_the_project_is_refused(server: PageServer, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / RESULTS, tmp_path / "outside")
    (folder / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(urllib.error.HTTPError):
        server.json("/prompt-eval/results?folder=link")
    (folder / "link").unlink()


def test_an_empty_folder_says_how_to_start(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    assert "evalloom prompt-eval all prompt_a.md" in serve_pages(tmp_path).get("/prompt-eval")
