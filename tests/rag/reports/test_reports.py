"""The reports of a RAG batch: complete, stable to the byte, and whole whatever the texts in them are.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden files; read them before committing.
"""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec import structs

from evalloom.core.model import Batch, Origin, Output, Run, Scored, Status, Verdict
from evalloom.core.ranking import measures, rank
from evalloom.rag.analysis.measures import RagResults, analyse, analyse_all
from evalloom.rag.reports import html as rag_html
from evalloom.rag.reports import json as rag_json
from evalloom.rag.reports import markdown as rag_markdown
from evalloom.ui.report_marks import MARKDOWN
from evalloom.ui.text import visible

GOLDEN = Path(__file__).parent / "golden"
ROOT, BASE = Path("/project/handbook"), Path("/project")
HOSTILE = "<script>document.title='owned'</script> | `x` **b** \u202egnp"
CONFIG = {"kind": "rag", "purpose": "retrieve", "k": 3, "retriever": "builtin", "mode": "bm25", "chunk": 800}
DOCUMENTS = {"zh/请假.md": "1", "en/leave.md": "2", "en/pay.md": "3"}
BATCH = Batch("20260105-080000-rag", "2026-01-05T08:00:00+00:00", config=CONFIG, documents=DOCUMENTS)
pytestmark = pytest.mark.req("RAG-7")
Row = tuple[Run, Scored]


def run_of(number: int, bucket: str, query: str, expected: list[str], **more: Any) -> Run:
    pair, tags, concept = more.pop("pair", ""), more.pop("tags", []), more.pop("concept", "")
    raw = {"id": f"c{number}", "query": query, "bucket": bucket, "expected_sources": expected, "pair_id": pair}
    raw |= {"concept_id": concept, "tags": tags, "must_include": more.pop("must_include", [])}
    place = Origin("cases/eval.jsonl", number)
    return Run(f"k{number}", f"c{number}", number=number, tags=(bucket, *tags), raw=raw, origin=place, **more)


def ranked(number: int, bucket: str, query: str, expected: list[str], sources: list[str], **more: Any) -> Row:
    given_sources = [{"source": one, "score": 9.0 - place} for place, one in enumerate(sources)]
    run = run_of(number, bucket, query, expected, output=Output(sources=given_sources), **more)
    values = measures(rank(expected, sources), 3)
    status: Status = "passed" if values.pop("hit@3") else "failed"
    verdicts = [Verdict("hit@3", "source_hit", "sources", status)]
    verdicts += [Verdict(name, "ranking", "sources", "passed", value, weight=0) for name, value in values.items()]
    return run, Scored(run.key, status, verdicts=verdicts)


def unranked(run: Run, status: Status) -> Row:
    return run, Scored(run.key, status)


def sample() -> list[Row]:
    """Both languages, every status, and text that would break a careless page."""
    zh, en, pay = "zh/请假.md", "en/leave.md", "en/pay.md"
    timed_out = "no answer within 3 s [timed_out]"
    return [
        ranked(1, "official", "年假可以结转到下一年吗？", [zh], [zh, en], pair="p1", concept="年假", tags=["zh"]),
        ranked(2, "oral", "没休完的假会不会作废啊", [zh], [pay, en], pair="p1", concept="年假", tags=["zh"]),
        ranked(3, "official", "Carry-over of leave", ["en/"], [pay, en], pair="p2", concept="leave", tags=["en"]),
        ranked(4, "oral", "can I keep my days off", [en, pay], [zh, pay], pair="p2", concept="leave", tags=["en"]),
        ranked(5, "ambiguous", HOSTILE, ["docs/a|b.md"], [HOSTILE], tags=["x|y"]),
        unranked(run_of(6, "oral", "pay day?", [pay], pair="p3", error=timed_out), "error"),
        ranked(7, "official", "Date of salary payment", [pay], [pay], pair="p3", concept="pay", tags=["en"]),
        unranked(run_of(8, "official", "What is the meaning of it all?", []), "unscored"),
        unranked(run_of(9, "oral", "only on Mondays", [pay], skipped="weekday"), "skipped"),
        unranked(run_of(10, "oral", "after the first", [pay], blocked="c2 did not pass"), "blocked"),
    ]


def results() -> list[RagResults]:
    return analyse_all(BATCH, sample())


def answers(text: str = "Up to five days [1].") -> list[RagResults]:
    expects = {"must_include": ["31 March", text], "pair": text, "concept": text, "tags": [text]}
    run = run_of(1, "official", text, [text], output=Output(text, sources=[{"source": text}]), **expects)
    verdicts = [
        Verdict("must_include", "contains_all", "output", "failed", reason=text),
        Verdict("citations", "citations", "output", "passed", 0.5, weight=0),
    ]
    other = unranked(structs.replace(run, key="k2", case_id="c2", number=2, error=text), "error")
    batch = structs.replace(BATCH, config={**CONFIG, "purpose": "answer", "model": text})
    return [analyse(batch, [(run, Scored(run.key, "failed", verdicts=verdicts)), other])]


def same_as_golden(text: str, name: str) -> bool:
    file = GOLDEN / name
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN"):
        file.write_text(text, "utf-8", newline="\n")
    return text == file.read_bytes().decode()


def test_stable_to_the_byte() -> None:
    assert same_as_golden(rag_json.render(results(), ROOT, base=BASE), "rag.json")
    assert same_as_golden(rag_markdown.render(results(), ROOT), "rag.md")
    assert same_as_golden(rag_html.render(results(), ROOT), "rag.html")


# -- JSON ----------------------------------------------------------------------------------------------


@pytest.mark.req("RAG-4")
def test_items_come_with_the_most_severe_first() -> None:
    items = rag_json.document(results(), ROOT, base=BASE)["items"]
    assert [(one["key"], one["status_label"], one["severity_level"]) for one in items] == [
        ("c6", "ERROR", 4),
        *((key, "FAIL", 3) for key in ("c2", "c5")),
        *((key, "WARN", 2) for key in ("c8", "c10")),
        ("c9", "INFO", 1),
        *((key, "PASS", 0) for key in ("c1", "c3", "c4", "c7")),
    ]
    assert items[1]["message"] == "expected zh/请假.md not found; found en/pay.md, en/leave.md"
    assert items[1]["loc"] == "cases/eval.jsonl:2:1"
    assert items[1]["loc_uri"] == "vscode://file/project/cases/eval.jsonl:2:1"


@pytest.mark.req("RAG-4")
def test_the_summary_counts_every_case_once() -> None:
    whole = rag_json.document(results(), ROOT)
    assert whole["schema_version"] == 2 and whole["generated_at"] == BATCH.created_at.replace("+00:00", "Z")
    assert whole["summary"]["counts"] == {"PASS": 4, "INFO": 1, "WARN": 2, "FAIL": 2, "ERROR": 1}
    assert (whole["summary"]["overall_status_label"], whole["summary"]["total_items"]) == ("ERROR", 10)
    assert (whole["overall"], whole["summary"]["overall_rc"]) == ("FAIL", 1)
    assert rag_json.document(results(), ROOT, exit_code=0)["overall"] == "PASS"


def test_measures_are_of_the_measured_cases_only() -> None:
    whole = rag_json.document(results(), ROOT)
    hit = whole["measures"][0]
    assert (hit["name"], hit["mean"], hit["cases"]) == ("hit@3", 0.666667, 6)
    assert [(one["name"], one["cases"]) for one in whole["buckets"]] == [("official", 3), ("oral", 2), ("ambiguous", 1)]
    assert [one["name"] for one in whole["tags"]] == ["en", "x|y", "zh"]


@pytest.mark.req("RAG-9")
def test_every_report_has_the_gap_and_the_concepts_first() -> None:
    pairs = rag_json.document(results(), ROOT)["pairs"]
    assert [(one["id"], one["is_official_only"]) for one in pairs["concepts"]] == [("年假", True), ("leave", False)]
    sentence = "Oral wordings are found 50.0 points less often than official ones: 50.0 % against 100.0 % (95 % CI"
    for text in (rag_markdown.render(results(), ROOT), rag_html.render(results(), ROOT)):
        assert (
            sentence in text
            and "exact McNemar p = 1.000; 2 pairs). No difference shown by hit@3: this may be chance." in text
        )
        assert text.index("Only the official wording works") < text.index("没休完")


def test_several_profiles_stand_one_after_another() -> None:
    others = [(structs.replace(run, profile="other"), scored) for run, scored in sample()[:2]]
    both = analyse_all(BATCH, [*sample(), *others])
    whole = rag_json.document(both, ROOT)
    assert whole["counts"]["cases"] == 12 and [one["profile"] for one in whole["other_profiles"]] == ["other"]
    assert "# Profile other" in rag_markdown.render(both, ROOT)
    page = Page(rag_html.render(both, ROOT))
    places = [one["id"] for _, one in page.elements if "id" in one]
    assert len(places) == len(set(places)) and "missed-2" in places


# -- Markdown ------------------------------------------------------------------------------------------


def test_markdown_tells_the_rates_with_a_bar() -> None:
    text = rag_markdown.render(results(), ROOT)
    assert "| oral | 2 | ██████████░░░░░░░░░░ | 50.0 % (9.5–90.5 %) |" in text
    assert (
        "Not measured: 1 case ended in an error, 1 case expects nothing, 1 case was skipped, 1 case was blocked."
        in text
    )
    assert "| c2 | oral | 没休完的假会不会作废啊 | zh/请假.md not found | en/pay.md, en/leave.md |" in text


@pytest.mark.req("RAG-8")
def test_failed_answers_are_shown_with_what_they_lack() -> None:
    text = rag_markdown.render(answers(), ROOT)
    assert "The answer contains everything it must in 0.0 % of 1 case" in text
    assert "| c1 | official | Up to five days \\[1\\]. | 31 March | Up to five days \\[1\\]. |" in text
    html = "".join(Page(rag_html.render(answers(), ROOT)).texts)
    assert "Missing in the answer" in html and "31 March" in html


# -- HTML ----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes; every one that opens is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "wbr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_runs_and_loads_nothing() -> None:
    html = rag_html.render(results(), ROOT)
    page = Page(html)
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy
    assert not page.all("script") and not re.search(r"https?:|url\(|@import|<link|<iframe", html)
    places = {one["id"] for _, one in page.elements if "id" in one}
    assert {str(one["href"])[1:] for one in page.all("a")} <= places


def test_the_picture_has_every_bucket_with_its_interval() -> None:
    page = Page(rag_html.render(results(), ROOT))
    pictures = [str(one["aria-label"]) for one in page.all("svg")]
    assert any("official: 100.0 % (43.9–100.0 %); oral: 50.0 % (9.5–90.5 %)" in one for one in pictures)
    assert sum(one.get("class") == "between" for one in page.all("rect")) == 4


@pytest.mark.slow
def test_a_page_of_ten_thousand_cases_lists_five_hundred_of_each_kind() -> None:
    rows = [ranked(n, "oral", f"query {n}", ["a.md"], ["a.md" if n % 2 else "b.md"]) for n in range(10_000)]
    html = rag_html.render(analyse_all(BATCH, rows), ROOT)
    page = Page(html)
    assert sum(one.get("class") == "case" for one in page.all("details")) == 1_000
    assert html.count("… and 4,500 more cases") == 2 and len(html) < 5_000_000


def test_nothing_measured_has_no_rates() -> None:
    for one in (analyse_all(BATCH, []), analyse_all(BATCH, sample()[7:])):
        assert "No case could be measured." in rag_markdown.render(one, ROOT)
        assert "nan" not in rag_html.render(one, ROOT).lower().replace("gnp", "")
        assert rag_json.document(one, ROOT)["overall"] == "PASS"


@given(st.text(min_size=1, max_size=30) | st.sampled_from([HOSTILE, "a|b\nc", "half \ud800", "</style><img src=x>"]))
def test_any_text_stays_text(text: str) -> None:
    found = answers(text)
    page = Page(rag_html.render(found, ROOT))
    assert visible(text) in "".join(page.texts)
    assert len(page.all("style")) == 1 and not page.all("script") and not page.all("img")
    html = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(rag_markdown.render(found, ROOT).replace(MARKDOWN, ""))
    )
    assert not re.search(r"<(?!/?(h[12]|p|strong|table|thead|tbody|tr|th|td|ul|li)\b)", html)
    json.loads(rag_json.render(found, ROOT))


@pytest.mark.req("WORK-14")
def test_both_pages_in_chinese() -> None:
    markdown = rag_markdown.render(results(), ROOT, language="zh")
    page = rag_html.render(results(), ROOT, language="zh")
    assert '<html lang="zh-Hans">' in page and "<h1>RAG 检索</h1>" in page and markdown.startswith("# RAG 检索\n")
    for text in (page, markdown):
        assert "在前 3 个段落中找到期望的来源（95% 置信区间" in text and "口语说法的命中率比官方说法低" in text
    assert "| 用例 | 分桶 | 查询 | 期望 | 实际检索到 | 位置 |" in markdown and "95 % CI" not in markdown + page
