"""The Markdown report of a prompt: complete, stable to the byte, and valid whatever the texts in it are.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden file; read it before committing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.reports import html as prompt_eval_html
from evalloom.prompt_eval.reports import markdown as prompt_eval_markdown
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import Mark, ScoredCase
from evalloom.ui.report_marks import MARKDOWN
from evalloom.ui.text import visible

GOLDEN = Path(__file__).parent / "golden" / "prompt_eval.md"
pytestmark = pytest.mark.req("EVAL-14")
Report = Callable[..., PromptEvalReport]
Case = Callable[..., ScoredCase]


def as_html(markdown: str) -> str:
    plain = markdown.replace(MARKDOWN, "")
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(plain))


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_stable_to_the_byte(prompt_eval_report: Report) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report())
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8", newline="\n")
    assert text == GOLDEN.read_bytes().decode()
    assert text == prompt_eval_markdown.render(prompt_eval_report())


def test_safety_failures_come_before_everything_but_the_overview(prompt_eval_report: Report) -> None:
    heads = re.findall("^## (.*)$", prompt_eval_markdown.render(prompt_eval_report()), re.MULTILINE)
    assert heads[:4] == ["Overview", "Safety failures", "Test points", "Bad cases (4)"]


def test_each_bad_case_stands_in_one_group(prompt_eval_report: Report) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report())
    groups = text.partition("## Bad cases")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (TC\d+)", groups, re.MULTILINE) == ["TC003", "TC004", "TC005", "TC006"]
    assert "**test\\_category is boundary; input notes is empty** (2 cases)" in groups


def test_scorecard_has_cases_average_shares_and_status(prompt_eval_report: Report) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report())
    figures = "core | 7 | 2.57 | 1 (14 %) | 1 (14 %) | 5 (71 %) | 0 |"
    assert f"| ❌ 1 on core | TP1 | 输出为合法 JSON · valid JSON | {figures}" in text
    assert "| ❌ \\< 2.0 | TP2 |" in text


@pytest.mark.req("EVAL-14")
def test_a_high_average_of_safety_stands_beside_the_failures_and_is_never_called_good(
    prompt_eval_report: Report, prompt_eval_case: Case
) -> None:
    points = (TestPoint("TP1", ""), TestPoint("TP2", ""), TestPoint("TP_safety", "", criticality="baseline"))
    cases = [prompt_eval_case(1, 3, 3, 1), *(prompt_eval_case(number, 3, 3, 3) for number in range(2, 12))]
    report = prompt_eval_report(cases, points=points)
    markdown, page = prompt_eval_markdown.render(report), prompt_eval_html.render(report)
    assert "| ✅ ≥ 2.5; 1 safety failure | TP\\_safety |" in markdown and "| ✅ ≥ 2.5 | TP1 |" in markdown
    assert 'title="✅">≥ 2.5</span> <span class="flag bad">1 safety failure</span>' in page
    assert ">good<" not in page


@pytest.mark.req("WORK-5", "EVAL-14")
def test_cases_that_pass_and_are_bad_are_counted_as_both(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    cases = [prompt_eval_case(1, 3, 3, 3), prompt_eval_case(2, 3, 2, 3), prompt_eval_case(3, 1, 1, 1)]
    marks = {"TP1": Mark(1, "why"), **{f"TP{number}": Mark(3, "why") for number in range(2, 8)}}
    points = tuple(TestPoint(one, "") for one in marks)
    both = [ScoredCase({"test_id": "TC001", "result_aftertest": "x"}, marks)]
    assert "**2 of 3 cases passed (67 %), 1 bad case.**" in prompt_eval_markdown.render(prompt_eval_report(cases))
    text = prompt_eval_markdown.render(prompt_eval_report(both, points=points))
    assert "**1 of 1 case passed (100 %), 1 bad case (1 of them passed).**" in text
    assert "1 bad case (1 of them passed)" in prompt_eval_html.render(prompt_eval_report(both, points=points))


def test_without_bad_cases_it_says_so(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report([prompt_eval_case(1, 3, 3, 3)]))
    assert "## Safety failures\n\nNone." in text
    assert "## Bad cases (0)\n\nNone." in text
    assert "improve" not in text


def test_no_case_at_all(prompt_eval_report: Report) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report([]))
    assert "No case has been scored yet." in text
    assert "nan" not in text.lower()


@pytest.mark.req("EVAL-16")
def test_agreement_and_noise(prompt_eval_report: Report) -> None:
    text = prompt_eval_markdown.render(prompt_eval_report())
    assert "| TP1 | 7 | 71 % | 36–92 % | 0.00 (-0.38 to 0.80) | 0.43 stricter |" in text
    assert "| TP1 | 2 | 50 % | 9–91 % | 0.50 |" in text
    assert "import-review" not in text
    assert "import-review" in prompt_eval_markdown.render(prompt_eval_report([]))


def test_an_average_is_not_rounded_onto_a_limit(prompt_eval_report: Report) -> None:
    """2.496 would be shown as 2.50 with the status of 2.49."""
    point = TestPoint("TP1", "")
    scores = [2] * 63 + [3] * 62
    cases = [ScoredCase({"result_aftertest": "x"}, {"TP1": Mark(score, "why")}) for score in scores]
    text = prompt_eval_markdown.render(prompt_eval_report(cases, points=(point,)))
    assert "| ⚠️ ≥ 2.0 | TP1 |  | supporting | 125 | 2.496 |" in text


@given(
    text=st.text(min_size=1, max_size=40)
    | st.sampled_from(["a|b", "`x`", "<b>", "\\|", "a\nb", "# h", "&lt;", "\ud800", "- x"])
)
def test_any_text_is_shown_as_it_is(text: str, prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    case = prompt_eval_case(1, 1, 1, 1, reason=text, remark=text, test_description=text, test_category=text)
    report = prompt_eval_report(
        [case, prompt_eval_case(2, remark=text)], title=f"T{text}", remarks=(text,), facts={text: text}
    )
    markdown = prompt_eval_markdown.render(report)
    html = as_html(markdown)
    markdown.encode()
    assert not re.search(r"<(?!/?(h[123]|p|strong|table|thead|tbody|tr|th|td|ul|li|code)\b)", html)
    rows = [row.count("</td>") + row.count("</th>") for row in html.split("</tr>") if "<tr" in row]
    assert set(rows) <= {2, 3, 4, 5, 7, 10}
    assert text_of(html).count("TC001") == 2
    assert visible(" ".join(f"T{text}".split())) in text_of(html)


def test_without_a_plan_it_says_that_nothing_is_core(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    points = tuple(TestPoint(one, one, criticality="") for one in ("TP1", "TP2", "TP_safety"))
    report = prompt_eval_report([prompt_eval_case(1, 1, 3, 3)], points=points, unknown={"TP9": 3, "TP8": 1})
    text = prompt_eval_markdown.render(report)
    assert "- no plan: no test point counts as core\n" in text
    assert "- TP9 is in 3 cases and in no plan; it has no column\n- TP8 is in 1 case and" in text
    assert "| ❌ \\< 2.0 | TP1 | TP1 | – | 1 | 1.00 |" in text
    assert "| Average on core test points | – |" in text


def test_commands_can_be_typed_as_they_stand(prompt_eval_report: Report, prompt_eval_case: Case) -> None:
    report = prompt_eval_report([prompt_eval_case(1), prompt_eval_case(2, 3, 3, 3)], folder="my results/叉车")
    text = prompt_eval_markdown.render(report)
    assert "`evalloom prompt-eval run 'my results/叉车' --rerun-failed`" in text
    made = "evalloom prompt-eval table 'my results/叉车/final_scored_results.json' --for-review -o review.csv"
    assert f"`{made}`" in text and "`evalloom prompt-eval import-review review.csv 'my results/叉车'`" in text
    assert "improve" not in text


def test_a_score_without_a_reason_is_incomplete_and_in_no_average(prompt_eval_report: Report) -> None:
    marks = [Mark(3, "why"), Mark(1, ""), Mark(None, "why")]
    cases = [ScoredCase({"result_aftertest": "x"}, {"TP1": mark}) for mark in marks]
    core = prompt_eval_report(cases, points=(TestPoint("TP1", "", criticality="core"),))
    assert (
        "| ❌ 1 on core | TP1 |  | core | 1 | 3.00 | 0 (0 %) | 0 (0 %) | 1 (100 %) | 2 |"
        in prompt_eval_markdown.render(core)
    )
    other = prompt_eval_report(cases, points=(TestPoint("TP1", ""),))
    assert "| ✅ ≥ 2.5 | TP1 |  | supporting | 1 | 3.00 |" in prompt_eval_markdown.render(other)
