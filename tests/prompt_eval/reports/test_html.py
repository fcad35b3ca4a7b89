"""The HTML report of a prompt: one file that loads nothing, runs nothing of what it shows, and can be filtered.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden file; read it before committing.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.reports import html as prompt_eval_html
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.ui.text import visible

GOLDEN = Path(__file__).parent / "golden" / "prompt_eval.html"
pytestmark = pytest.mark.req("EVAL-14")
Report = Callable[..., PromptEvalReport]
Case = Callable[..., ScoredCase]
Dom = Callable[..., "Page"]
ATTACKS = (
    "<script>document.title='owned'</script>",
    "</style><img src=x onerror=\"document.title='owned'\">",
    "</script><svg onload=document.title='owned'>",
    "\" onmouseover=\"document.title='owned'\" autofocus onfocus=\"document.title='owned'",
    "--><b>bold</b><!--",
)


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes, and whether every one that opens is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "wbr", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def is_whole(self) -> bool:
        return not self._open

    def shown_cases(self) -> list[str | None]:
        return [one["id"] for one in self.cases() if "hidden" not in one]

    def cases(self) -> list[dict[str, str | None]]:
        return [one for one in self.all("details") if one["class"] == "case"]


@pytest.fixture
def dom(require_tool: Callable[[str], str], tmp_path: Path) -> Dom:
    """`dom(html, "#show=bad")` opens a page from disk in a real browser and gives what has become of it."""
    browser = require_tool("chromium")
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []

    def load(html: str, fragment: str = "") -> Page:
        file = tmp_path / "report.html"
        file.write_text(html, "utf-8")
        flags = ["--headless", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", *as_root]
        command = [browser, *flags, "--virtual-time-budget=2000", "--dump-dom", f"{file.as_uri()}{fragment}"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        return Page(done.stdout.decode())

    return load


def test_stable_to_the_byte(prompt_eval_report: Report) -> None:
    html = prompt_eval_html.render(prompt_eval_report())
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN"):
        GOLDEN.write_text(html, "utf-8", newline="\n")
    assert html == GOLDEN.read_bytes().decode()


def test_nothing_is_loaded_from_anywhere(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    links = [
        value for _, one in page.elements for key, value in one.items() if key in ("href", "src", "action", "data")
    ]
    assert links and all(link and link.startswith("#") for link in links)
    assert not re.search(r"https?:|url\(|@import|<link|<iframe", page.html)
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'sha256-")


def test_every_link_leads_somewhere(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    places = [one["id"] for _, one in page.elements if "id" in one]
    inside = {str(one["href"])[1:] for one in page.all("a") if "=" not in str(one["href"])}
    assert len(places) == len(set(places))
    assert inside <= set(places)


def test_every_case_is_there_with_input_output_scores_and_reasons(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    assert page.shown_cases() == [f"TC{number:03d}" for number in range(1, 9)]
    texts = "\n".join(page.texts)
    for piece in (
        "product_name",
        "フォークリフト",
        '{"main_search_product": "电动叉车"',
        "countries = ['中国']",
        "Solid output.",
    ):
        assert piece in texts
    assert "The run gave no output." in texts
    assert "[scoring incomplete: TP2]" in texts


def test_safety_failures_come_first(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    sections = [one["id"] for one in page.all("section")]
    assert sections == ["safety", "points", "categories", "scores", "bad", "trust", "next", "cases"]
    assert page.all("section")[0]["class"] == "alarm"


def test_texts_are_marked_with_their_language(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    assert page.all("html")[0]["lang"] == "en"
    assert {one.get("lang") for one in page.all("span") if one.get("class") == "user"} == {"zh", "ja", None}


def test_charts_say_their_figures_in_words(prompt_eval_report: Report) -> None:
    said = [one["aria-label"] for one in Page(prompt_eval_html.render(prompt_eval_report())).all("svg")]
    assert said[:2] == ["95 % interval 16–75 %", "1 case with 1, 1 case with 2, 5 cases with 3"]
    assert str(said[-1]).startswith("< 50 %: 1 case; 50–59 %: 0 cases")


@pytest.mark.slow
def test_a_thousand_long_cases_stay_usable(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    cases = [prompt_eval_case(number, 3, 2, 3, result_aftertest="长" * 9_000) for number in range(1, 1001)]
    html = prompt_eval_html.render(prompt_eval_report(cases))
    assert len(html.encode()) < 20_000_000
    assert "5,000 more characters in final_scored_results.json, case TC1000" in html


def test_no_case_at_all(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report([], points=())))
    assert page.is_whole()
    assert "nan" not in page.html.lower().replace("dominant", "")


def test_ids_that_are_odd_or_stand_twice_have_a_place_each(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    odd = [prompt_eval_case(1, 1, 1, 1, test_id=one) for one in ("TC001", "TC001", "cases", "a b", "", None)]
    page = Page(prompt_eval_html.render(prompt_eval_report(odd)))
    places = [one["id"] for _, one in page.elements if "id" in one]
    assert len(places) == len(set(places))
    assert [one.get("id") for one in page.cases()] == ["TC001", None, "case:3", "case:4", "case:5", "None"]


def hostile(text: str, build: Report, case: Case) -> PromptEvalReport:
    """A report in which every text that a user or a model may write is this one."""
    everywhere = {"test_id": text, "test_category": text, "test_subcategory": text, "test_description": text}
    bad = case(1, 1, 1, 1, reason=text, remark=text, result_aftertest=text, input={text: text}, **everywhere)
    points = tuple(TestPoint(one, text) for one in bad.marks)
    facts = {"title": text, "prompt": text, "folder": text, "remarks": (text,), "facts": {text: text}}
    return build([bad, case(2, remark=text, **everywhere)], points=points, **facts)


@given(text=st.text(max_size=30) | st.sampled_from([*ATTACKS, "half \ud800", "a\x00\u202eb"]))
def test_any_text_stays_text(text: str, prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    page = Page(prompt_eval_html.render(hostile(text, prompt_eval_report, prompt_eval_case)))
    page.html.encode()
    assert page.is_whole()
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert not page.all("img") and not any(name.startswith("on") for _, one in page.elements for name in one)
    assert visible(text) in "".join(page.texts)


# -- in a browser -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_injected_script_does_not_run(dom: Dom, prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    page = dom(prompt_eval_html.render(hostile("".join(ATTACKS), prompt_eval_report, prompt_eval_case)))
    assert not page.html.partition("<title>")[2].startswith("owned")
    assert len(page.all("script")) == 1 and not page.all("img")
    assert "2 of 2 cases" in page.texts


@pytest.mark.slow
def test_the_policy_stops_what_escaping_would_have_missed(dom: Dom, prompt_eval_report: Report) -> None:
    html = prompt_eval_html.render(prompt_eval_report())
    added = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"></main>"
    page = dom(html.replace("</main>", added))
    assert "产品搜索词 · product search terms</title>" in page.html
    assert "8 of 8 cases" in page.texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fragment", "shown"),
    [
        ("#show=bad", 4),
        ("#category=safety&show=bad", 1),
        ("#text=%E3%83%95%E3%82%A9%E3%83%BC%E3%82%AF+incomplete", 1),
        ("#text=nowhere", 0),
        ("#category=unknown", 8),
        ("#TC005", 8),
        ("#%zz", 8),
    ],
)
def test_the_filter_shows_what_fits(fragment: str, shown: int, dom: Dom, prompt_eval_report: Report) -> None:
    page = dom(prompt_eval_html.render(prompt_eval_report()), fragment)
    assert len(page.shown_cases()) == shown
    assert f"{shown} of 8 cases" in page.texts
    assert [one["id"] for one in page.cases() if "open" in one] == (["TC005"] if "TC005" in fragment else [])


def test_without_a_script_all_cases_are_there_and_no_filter(prompt_eval_report: Report) -> None:
    page = Page(prompt_eval_html.render(prompt_eval_report()))
    assert len(page.shown_cases()) == 8
    assert "hidden" in page.all("form")[0]
