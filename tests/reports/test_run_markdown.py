"""The Markdown report: the conclusion first, short whatever the batch holds, and no markup or mention from the data."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare import CaseResult, Comparer, ComparisonRules
from evalloom.analysis.compare_rule import conclude
from evalloom.core.model import Mismatch, Origin, Output, Run, Scored, Status, Verdict
from evalloom.reports import run_markdown
from evalloom.reports.run_report import ComparedWith, ReportRow, RunReport
from evalloom.ui.markdown import code

pytestmark = pytest.mark.req("WORK-14")
CODE = re.compile(r"`[^`|\n]*`|<code>(?:[^!-/:-@\[-`{-~]|&#\d+;)*</code>")
"""What `code` may give: on GitHub, nothing in it is markup, a mention or a link."""
ATTACK = "@octocat #12 https://evil.example | `x` <img src=x> [a](b)\n\n# title \\| **b**"


def run(number: int, status: Status = "failed", text: str = "no", **more: Any) -> ReportRow:
    verdict = Verdict(text, "equals", "output", status, 0.0, text, [Mismatch("", text, text)])
    fields: dict[str, Any] = {"profile": "p", "number": number, "tags": (text,), "origin": Origin("c.jsonl", number)}
    return Run(f"k{number}", f"c{number}", output=Output(text), **(fields | more)), Scored(
        f"k{number}", status, 0.0, [verdict]
    )


def page(rows: list[ReportRow], **more: Any) -> str:
    stream = io.BytesIO()
    run_markdown.render(RunReport({"id": "b1"}, {}, more.pop("gates", []), rows, **more), stream)
    return stream.getvalue().decode()


def compared(name: str = "main") -> ComparedWith:
    """A comparison in which c1 was lost and c2 gained."""
    comparer = Comparer("p", "p")
    for add, passing in ((comparer.add_before, "c1"), (comparer.add, "c2")):
        for id in ("c1", "c2"):
            is_good = id == passing
            status: Status = "passed" if is_good else "failed"
            add(CaseResult(id, 1, status, float(is_good), reason="why", passed=int(is_good), repeats=1))
    concluded = conclude([comparer.result()], ComparisonRules())
    return ComparedWith(name, concluded, ["the model changed"], False, True)


def test_the_first_line_is_the_conclusion_and_the_table_has_every_profile() -> None:
    gates = [{"text": "pass_rate >= 0.9", "holds": False, "actual": 0.5, "reason": "it is 0.5"}]
    lines = page([run(1, "passed"), run(2), run(1, "error", profile="q")], gates=gates).splitlines()
    assert lines[0].startswith("**1 of 3 runs passed.** 1 failed, 1 ended in an error.")
    assert lines[0].endswith("The gate does not hold.")
    assert [line.split(" | ")[0] for line in lines[4:7]] == ["| `p`", "| `q`", "| all"]
    assert "| does not hold | `pass_rate >= 0.9` | `it is 0.5` |" in lines


def test_at_most_ten_failures_are_listed_each_case_once() -> None:
    rows = [run(number, repeat=repeat) for number in range(1, 13) for repeat in (0, 1)]
    text = page(rows)
    assert "### 12 cases failed" in text and "\nand 2 more\n" in text
    assert [number for number in range(1, 13) if f"`c.jsonl:{number}`" in text] == list(range(1, 11))
    assert text.count("`c1` · `p`") == 1


def test_a_failure_shows_check_reason_expected_and_actual() -> None:
    verdict = Verdict("says it", "equals", "output", "failed", 0.0, "not equal", [Mismatch("", "yes", "no")])
    text = page([(Run("k", "c1", "p", origin=Origin("c.jsonl", 7)), Scored("k", "failed", 0.0, [verdict]))])
    assert "| `c1` · `p` | `c.jsonl:7` | `says it` | `not equal` | `yes` | `no` |" in text


@pytest.mark.parametrize("text", ["word " * 20_000, "|`<" * 20_000, "案例" * 40_000])
def test_it_fits_into_a_comment_whatever_the_batch_holds(text: str) -> None:
    rows = [run(number, text=f"{number}{text}", profile=f"{number % 60}{text}") for number in range(600)]
    gates = [{"text": text, "holds": False, "reason": text}] * 300
    written = page(sorted(rows, key=lambda row: row[0].profile), gates=gates, stopped=text, state="stopped")
    assert len(written) < 65_000 and written.startswith("**0 of 600 runs passed.**")
    assert written.endswith("<!-- made by evalloom -->\n")


def test_where_there_is_no_room_parts_are_left_out_and_it_says_so() -> None:
    gates = [{"text": "|" * 300, "holds": False, "reason": "|" * 300}] * 20
    text = page([run(number, text=f"{number}" + "|" * 300) for number in range(30)], gates=gates)
    assert len(text) < 65_000 and "Parts are left out" in text and "### Gates" in text


@given(st.text())
def test_a_text_is_code_on_one_line_and_nothing_else(text: str) -> None:
    assert not code(text) or CODE.fullmatch(code(text))


def test_no_mention_link_or_html_comes_from_the_data() -> None:
    gates = [{"text": ATTACK, "holds": False, "reason": ATTACK}]
    batch = {"id": ATTACK, "target": ATTACK, "profiles": [{"name": ATTACK}]}
    answer = {
        "question": {"margin": 0.05, "baseline": ATTACK, "threshold": None},
        "profiles": [{"profile": ATTACK, "conclusion": "worse", "cases": 2, "low": -0.5, "high": -0.1}] * 2,
        "cases": 9,
        "started": 2,
    }
    stream = io.BytesIO()
    rows = [run(1, text=ATTACK, profile=ATTACK), run(2, text=ATTACK, profile=ATTACK)]
    known: dict[str, Any] = {"state": "stopped", "stopped": ATTACK, "damage": [ATTACK], "answer": answer}
    run_markdown.render(RunReport(batch, {}, gates, rows, compared=compared(ATTACK), **known), stream)
    rest = CODE.sub("", stream.getvalue().decode())
    assert not re.search(r"@|#\d|://|octocat|evil|<img|`", rest)
    tables = [line for line in rest.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables if "· " in line} == {7}


def test_a_comparison_shows_its_conclusion_and_the_flips() -> None:
    text = page([run(1), run(2, "passed")], compared=compared())
    assert "Against `main`:" in text.splitlines()[0]
    assert "### What changed against `main`" in text and "1 gained and 1 lost of 2 cases." in text
    assert "**Lost (1)**" in text and "| `c1` | Passed → Failed | `why` |" in text
    assert "<summary>Gained (1)</summary>" in text and "- `the model changed`" in text


def test_a_report_in_chinese() -> None:
    text = page([run(1), run(2, "passed")], compared=compared(), language="zh")
    assert text.startswith("**2 次运行中有 1 次通过。**") and "### 与 `main` 相比的变化" in text
    assert "| 用例 | 位置 | 检查 | 原因 | 期望 | 实际 |" in text


@pytest.mark.req("WORK-16")
@pytest.mark.parametrize(
    ("question", "conclusion", "words"),
    [
        ({"threshold": 0.9}, "at_least", "the pass rate is at least 90 %, or less than 5 points below"),
        ({"threshold": 0.925}, "below", "the pass rate is below 92.5 %"),
        ({"baseline": "main"}, "worse", "the pass rate is below `main` (always-valid 95 % CI −50.0 to −10.0 points"),
        ({}, "open", "Not sure after 40 of 100 cases in random order: the cases do not decide it"),
    ],
)
def test_what_until_sure_decided_is_one_sentence(question: dict[str, Any], conclusion: str, words: str) -> None:
    answer = {
        "question": {"margin": 0.05, "baseline": "", "threshold": None} | question,
        "profiles": [{"profile": "p", "conclusion": conclusion, "cases": 40, "low": -0.5, "high": -0.1}],
        "cases": 100,
        "started": 40,
    }
    summary = {"pass_rate_low": 0.11, "pass_rate_high": 0.99}
    summary["profiles"] = {"p": dict(summary)}  # type: ignore[assignment]
    stream = io.BytesIO()
    run_markdown.render(RunReport({}, summary, [], [run(1), run(2, "passed")], answer=answer), stream)
    text = stream.getvalue().decode()
    assert words in text and "40 of 100 cases" in text and "| 50.0 % | 11.0–99.0 % |" in text
