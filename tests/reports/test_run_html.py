"""The HTML report of a batch: one file with every run, that loads nothing and runs nothing of what it shows."""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare import CaseResult, Comparer, ComparisonRules
from evalloom.analysis.compare_rule import conclude
from evalloom.analysis.tally import Tally
from evalloom.core.model import Case, Check, Mismatch, Origin, Output, Run, Scored, Status, Usage, Verdict
from evalloom.reports import run_html
from evalloom.reports.chunks import ChunkWriter
from evalloom.reports.details import detail
from evalloom.reports.run_report import ComparedWith, ReportRow, RunReport
from evalloom.ui.text import visible

pytestmark = pytest.mark.req("WORK-14")
ATTACKS = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "\" onmouseover=\"document.title='owned'",
    "<!-- runs -->",
)
DATA_TYPES = {"application/json", "application/octet-stream"}


def run(number: int, status: Status = "passed", text: str = "an answer", **more: Any) -> ReportRow:
    """A run with a model call, and a check that failed if the run did."""
    messages = [{"role": "user", "content": f"question {number}"}]
    call = {"type": "llm", "llm": "m", "duration_s": 0.2, "request": {"messages": messages}, "response": {"text": text}}
    mismatches = [] if status == "passed" else [Mismatch("", "the right answer", text)]
    reason = "" if status == "passed" else f"expected 'right {number}'"
    verdicts = [Verdict("says it", "equals", "output", status, float(status == "passed"), reason, mismatches)]
    fields: dict[str, Any] = {
        "case_id": f"c{number}",
        "profile": "p",
        "number": number,
        "output": Output(text),
        "duration_s": 0.25,
        "usage": Usage(10, 5, 0.001, 1),
        "trace": [call],
        "tags": ("even" if number % 2 == 0 else "odd",),
        "origin": Origin("cases.jsonl", number),
        "raw": {"q": f"question {number}"},
    }
    key = f"k{number}-{more.get('profile', 'p')}-{more.get('repeat', 0)}"
    scored = Scored(key, "error") if more.get("error") else Scored(key, status, float(status == "passed"), verdicts)
    return Run(key, **{**fields, **more}), scored


def rendered(rows: list[ReportRow], **more: Any) -> str:
    tally = Tally(more.pop("pass_if", None))
    for pair in rows:
        tally.add(*pair)
    summary = msgspec.to_builtins(tally.summary("b", "batches/b"))
    stream = io.BytesIO()
    batch = more.pop("batch", {"id": "b", "target": "prompt:p.md", "profiles": [{"name": "p", "run": "m"}]})
    run_html.render(RunReport(batch, summary, more.pop("gates", []), rows, **more), stream)
    return stream.getvalue().decode()


class Page(HTMLParser):
    """A page taken apart: its elements, its texts outside of data, and its data by the id of its element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data: dict[str, Any] = {}
        self._script: dict[str, str | None] | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script = dict(attrs) if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.texts.append(data)
        elif self._script.get("type") == "application/json":
            self.data[str(self._script["id"])] = json.loads(data)
        elif self._script.get("type"):
            self.data[str(self._script["id"])] = json.loads(zlib.decompress(b64decode(data), -zlib.MAX_WBITS))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The details of every run, in order."""
        chunks = len(self.data["index"]["starts"])
        return [one for number in range(chunks) for one in self.data[f"run-{number}"]]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_headline_names_the_rate_its_interval_and_all_that_is_beside_it() -> None:
    rows = [run(1), run(2, "failed"), run(3, error="no answer [timed_out]"), run(4, "unscored"), run(5, "skipped")]
    page = Page(rendered(rows))
    assert (
        "1 of 3 runs passed. 1 failed, 1 ended in an error. Not in the rate: 1 could not be scored, 1 was skipped."
        in page.text
    )
    assert "33.3 %" in page.text and "95 % CI 6.1–79.2 %" in page.text


@pytest.mark.req("WORK-5")
def test_the_numbers_are_those_of_the_summary() -> None:
    rows = [
        run(n, "failed" if n % 3 == 0 else "passed", profile=p, repeat=r)
        for p in "pq"
        for n in range(1, 8)
        for r in (0, 1)
    ]
    tally = Tally()
    for pair in rows:
        tally.add(*pair)
    summary, page = tally.summary(), Page(rendered(rows))
    assert f"{100 * (summary.pass_rate or 0):.1f} %" in page.text
    assert f"{summary.passed} of {summary.total} runs passed." in page.text
    for name in ("p", "q"):
        assert f"{100 * (summary.profiles[name].pass_rate or 0):.1f} %" in page.text


def test_every_run_is_there_with_input_expectation_output_checks_and_messages() -> None:
    case = Case("c1", {"q": "question"}, (Check("equals", "the right answer"),))
    page = Page(rendered([run(1, "failed"), run(2)], case_of=lambda run: case))
    first = page.runs[0]
    assert first["input"] == [["q", {"v": "question"}]] and first["expected"] == [["equals", {"v": "the right answer"}]]
    assert first["output"] == {"v": "an answer"} and first["checks"][0]["reason"] == "expected 'right 1'"
    assert first["checks"][0]["differences"] == [["", {"v": "the right answer"}, {"v": "an answer"}]]
    assert first["steps"][0]["messages"] == [["user", {"v": "question 1"}], ["answer", {"v": "an answer"}]]
    assert page.data["index"]["runs"]["id"] == ["c1", "c2"] and len(page.runs) == 2


@pytest.mark.req("WORK-11")
def test_failures_are_grouped_by_cause_and_lead_to_their_runs() -> None:
    page = Page(rendered([run(1), run(2, "failed"), run(3, "failed"), run(4, error="no answer [timed_out]")]))
    assert "3 failures, 2 causes" in page.text and "for example: expected 'right 2'" in page.text
    links = [one["href"] for one in page.all("a")]
    assert "#run=1" in links and "#run=3" in links
    assert page.data["index"]["runs"]["cause"] == [-1, 0, 0, 1]


def test_tags_gates_and_repeats_are_shown() -> None:
    gates = [{"text": "pass_rate >= 90%", "holds": False, "actual": 0.5, "reason": "", "low": 0.1, "high": 0.9}]
    rows = [run(n, "failed" if n + r == 2 else "passed", repeat=r) for n in (1, 2) for r in (0, 1)]
    text = Page(rendered(rows, gates=gates)).text
    assert (
        "The gate does not hold." in text and "does not hold pass_rate >= 90% it is 0.5 (95 % CI 10.0–90.0 %)" in text
    )
    assert "even 50 % 1 case" in text and "2 of 2 cases are flaky" in text


def test_a_gate_that_just_fails_shows_enough_digits() -> None:
    gates = [{"text": "pass_rate >= 0.8", "holds": False, "actual": 0.79976, "reason": "", "low": 0.7, "high": 0.9}]
    assert "it is 0.79976 (95 %" in Page(rendered([run(1, "failed")], gates=gates)).text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"state": "running"}, "The batch is still running"),
        (
            {"state": "stopped", "stopped": "the budget is spent"},
            "stopped early (the budget is spent): cases are missing",
        ),
        ({"damage": ["b/runs.jsonl:3: truncated"]}, "1 line of the log cannot be read"),
        ({"problem": "nothing_expected"}, "Nothing is expected of any case"),
    ],
)
def test_what_must_be_known_first_is_said_first(more: dict[str, Any], said: str) -> None:
    assert said in Page(rendered([run(1)], **more)).text


def test_a_batch_without_runs_says_so() -> None:
    page = Page(rendered([], batch={}))
    assert "This batch has no runs." in page.text and page.data["index"]["runs"]["id"] == []


def test_a_huge_output_is_cut_and_the_page_knows_how_much_is_missing() -> None:
    html = rendered([run(1, "failed", "长" * 3_000_000), run(2)])
    assert len(html) < 300_000
    output = Page(html).runs[0]["output"]
    assert len(output["t"]) + output["more"] == 3_000_000


def test_details_stay_within_their_budget_whatever_they_hold() -> None:
    chance, stream = random.Random(1), io.BytesIO()
    writer = ChunkWriter(stream, 400_000, 200)
    for number in range(200):
        noise = "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(5_000))
        writer.add(detail(*run(number, "failed", noise), None, [], writer.room()))
    writer.flush()
    # The first chunk is written before it is known how well texts can be compressed.
    assert stream.tell() < 800_000 and len(writer.starts) > 1


def test_where_there_is_no_room_parts_are_left_out_and_named() -> None:
    whole = json.loads(detail(*run(1, "failed", "x" * 2_000), None, [], 100_000))
    small = json.loads(detail(*run(1, "failed", "x" * 2_000), None, [], 500))
    assert "dropped" not in whole and small["dropped"] == ["steps"]
    assert small["output"]["more"] > 1_000 and small["checks"][0]["reason"] == whole["checks"][0]["reason"]


def test_a_very_deep_value_is_shown() -> None:
    deep: Any = "end"
    for _ in range(400):
        deep = {"a": [deep]}
    assert Page(rendered([run(1, output=Output(deep), raw={"q": deep})])).runs[0]["output"] == {"v": deep}


def test_of_a_very_large_batch_those_that_did_not_pass_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_html, "MOST_RUNS", 4)
    page = Page(rendered([run(n, "failed" if n > 7 else "passed") for n in range(1, 11)]))
    assert page.data["index"]["runs"]["id"] == ["c1", "c8", "c9", "c10"]
    assert "The table has 4 of 10 runs" in page.text and "7 of 10 runs passed." in page.text


def compared(now: list[ReportRow], before: list[ReportRow], has_outputs: bool = True) -> str:
    comparer = Comparer("p", "p")
    for add, rows in ((comparer.add_before, before), (comparer.add, now)):
        for one, scored in rows:
            add(
                CaseResult(
                    one.case_id,
                    1,
                    scored.status,
                    float(scored.status == "passed"),
                    passed=int(scored.status == "passed"),
                    repeats=1,
                )
            )
    concluded = conclude([comparer.result()], ComparisonRules())
    side = ComparedWith("before", concluded, ["another model"], False, True, before if has_outputs else ())
    return rendered(now, compared=side)


@pytest.mark.req("WORK-7")
def test_a_comparison_shows_its_conclusion_and_both_outputs_of_what_flipped() -> None:
    before = [run(1, "passed", "old one"), run(2, "failed", "old two"), run(3)]
    page = Page(compared([run(1, "failed", "new one"), run(2, "passed", "new two"), run(3)], before))
    assert "No difference to before shown: +0.0 points" in page.text and "1 gained and 1 lost of 3 cases" in page.text
    assert page.data["index"]["runs"]["change"] == ["lost", "gained", ""]
    assert [one["before"][0]["output"] for one in page.runs[:2]] == [{"v": "old one"}, {"v": "old two"}]
    assert "before" not in page.runs[2] and "another model" in page.text
    assert "A baseline stores no outputs" in Page(compared([run(1, "failed")], before, has_outputs=False)).text


def test_a_report_in_chinese() -> None:
    page = Page(rendered([run(1), run(2, "failed")], language="zh"))
    assert page.all("html")[0]["lang"] == "zh-Hans"
    assert "2 次运行中有 1 次通过。" in page.text and "1 次失败，1 种原因" in page.text
    assert page.data["index"]["phrases"]["Close"] == "关闭"
    labels = {one.get("aria-label") for _, one in page.elements} - {None}
    assert not [label for label in labels if re.search("[A-Za-z]{4,}", str(label))]


# -- safety ------------------------------------------------------------------------------------------------


def hostile(text: str) -> str:
    """A report in which every text that a user or a model may write is this one."""
    mismatch = [Mismatch(text, text, {text: text})]
    verdict = Verdict(text, "equals", text, "failed", 0.0, text, mismatch, follows=text)
    more: dict[str, Any] = {
        "case_id": text,
        "profile": text,
        "tags": (text,),
        "origin": Origin(text, 3),
        "raw": {text: text},
    }
    bad, _ = run(1, "failed", text, **more)
    rows = [(bad, Scored("k", "failed", 0.0, [verdict], step=text)), run(2, error=text, **more)]
    gates = [{"text": text, "holds": False, "actual": None, "reason": text}]
    batch = {
        "id": text,
        "target": text,
        "judge": text,
        "profiles": [{"name": text, "run": text}],
        "datasets": [{"path": text}],
    }
    return rendered(rows, gates=gates, batch=batch, stopped=text, state="stopped", damage=[text])


@pytest.mark.req("WORK-24")
@given(text=st.text(min_size=1, max_size=30) | st.sampled_from([*ATTACKS, "half \ud800", "a\x00\u202eb"]))
def test_any_text_stays_text(text: str) -> None:
    page = Page(hostile(text))
    assert [one for one in page.all("script") if one.get("type") not in DATA_TYPES] == [{}]
    assert not page.all("img") and not any(name.startswith("on") for _, one in page.elements for name in one)
    assert visible(text) in "".join(page.texts)
    assert len(page.runs) == 2


@pytest.mark.req("WORK-24")
def test_nothing_is_loaded_from_anywhere() -> None:
    page = Page(rendered([run(1)]))
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert not re.search(r"https?:|url\(|@import|<link|<iframe|\bfetch\(|import\(", page.html)


# -- in a browser ------------------------------------------------------------------------------------------


@pytest.fixture
def dom(require_tool: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`dom(html, "#run=0")` opens a page from disk in a real browser and gives what has become of it."""
    browser = require_tool("chromium")
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []

    def load(html: str, fragment: str = "") -> str:
        file = tmp_path / "report.html"
        file.write_text(html, "utf-8")
        flags = ["--headless", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", *as_root]
        command = [browser, *flags, "--virtual-time-budget=4000", "--dump-dom", f"{file.as_uri()}{fragment}"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        return done.stdout.decode().partition('<script id="index"')[0]

    yield load


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fragment", "shown"),
    [
        ("", 50),
        ("#status=failed", 20),
        ("#tag=odd&status=failed", 10),
        ("#text=question+17", 12),
        ("#text=nowhere", 0),
        ("#tag=unknown", 50),
        ("#%zz", 50),
    ],
)
def test_the_filter_shows_what_fits(fragment: str, shown: int, dom: Callable[..., str]) -> None:
    html = rendered([run(n, "failed" if n > 180 else "passed", "x" * 900) for n in range(1, 201)])
    assert 'type="application/octet-stream"' in html
    found = dom(html, fragment)
    assert found.count('class="open"') == shown
    assert f"{shown} of 200 runs" in found or "page 1 of 4" in found


@pytest.mark.slow
def test_a_run_opens_with_its_differences_and_both_sides(dom: Callable[..., str]) -> None:
    html = compared([run(1, "failed", "the wrong answer")], [run(1, "passed", "the right answer!")])
    opened = dom(html, "#run=0").partition("<dialog")[2]
    assert opened.count("<del>right</del>") == opened.count("<ins>wrong</ins>") == 2
    assert "<del>!</del>" in opened and "question 1" in opened and "Output before" in opened


@pytest.mark.slow
def test_an_answer_that_is_json_is_indented_unless_its_values_would_change(dom: Callable[..., str]) -> None:
    opened = dom(rendered([run(1, "passed", '{"a": [1, "b c"]}')]), "#run=0").partition("<dialog")[2]
    assert '{\n  "a": [\n    1,\n    "b c"\n  ]\n}' in opened
    opened = dom(rendered([run(1, "passed", '{"a": 1.50}')]), "#run=0").partition("<dialog")[2]
    assert '{"a": 1.50}' in opened


@pytest.mark.slow
@pytest.mark.req("WORK-24")
def test_injected_script_does_not_run(dom: Callable[..., str]) -> None:
    found = dom(hostile("".join(ATTACKS)), "#run=0")
    assert "owned" not in found.partition("<title>")[2].partition("onerror")[0].partition("</title>")[0].replace(
        "title='owned'", ""
    )
    assert "<img" not in found and found.count("<script>document") == 0
    assert "<dialog" in found and "run-title" in found
