"""The report of a prompt in Chinese: no label of the template or of Markdown is left in English."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from evalloom.prompt_eval.reports import html as prompt_eval_html
from evalloom.prompt_eval.reports import markdown as prompt_eval_markdown
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase

pytestmark = pytest.mark.req("WORK-14")
GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = Path(__file__).parents[3] / "examples" / "prompt-eval"
Report = Callable[..., PromptEvalReport]
WORD = re.compile(r"[A-Za-z]{2,}")
USERS_TEXT = re.compile(r"(?s)<(code|style|script)>.*?</\1>|<option value=\"\w+\">\w+</option>")
NAMES = {"evalloom", "kappa", "safety", "happy", "path", "boundary", "qualitative", "injection", "TP", "TC", "TP1"}
"""What stays: names of categories, files and measures."""


def words_of(texts: list[str]) -> set[str]:
    return {word for text in texts for word in WORD.findall(unescape(text))} - NAMES


def labels(page: str) -> list[str]:
    """The texts and the spoken labels of a page, without those of users."""
    body = USERS_TEXT.sub("", page.partition("<body>")[2])
    # The name of a test point beside its id.
    body = re.sub(r"<b>TP[^<]*</b>", "", body)
    body = re.sub(r'(?s)<span class="user".*?</span>|<(dt|dd)>(product_name|notes)</\1>', "", body)
    return re.findall(r'(?:aria-label|title|placeholder)="([^"]*)"', body) + re.findall(r">([^<]+)<", body)


def test_no_label_of_the_page_is_left_in_english(prompt_eval_report: Report) -> None:
    english = prompt_eval_html.render(prompt_eval_report())
    page = prompt_eval_html.render(prompt_eval_report(), "zh")
    assert (
        '<html lang="zh-Hans">' in page and "<h2>不良用例（4）</h2>" in page and "7 个用例中有 3 个通过（43%）" in page
    )
    assert len(words_of(labels(english))) > 100
    assert words_of(labels(page)) == set()


def test_the_script_counts_in_chinese(prompt_eval_report: Report) -> None:
    page = prompt_eval_html.render(prompt_eval_report(), "zh")
    assert "`${cases.length} 个用例中的 ${shown} 个`" in page and "cases`" not in page


def test_no_heading_and_no_column_of_markdown_is_left_in_english(prompt_eval_report: Report) -> None:
    english, page = (prompt_eval_markdown.render(prompt_eval_report(), code) for code in ("en", "zh"))
    assert "| 状态 | 测试点 | 名称 | 重要性 | 用例数 | 平均分 | 1 | 2 | 3 | 不完整 |" in page
    assert "**test\\_category 为 boundary；输入 notes 为空** (2 个用例)" in page
    heads = [re.findall(r"^## (.*)$|^(\|.*)\n\|-", text, re.MULTILINE) for text in (english, page)]
    found = [words_of([part for pair in pairs for part in pair]) for pairs in heads]
    assert len(found[0]) > 20 and found[1] == set()


def test_a_report_without_scores_or_failures(
    prompt_eval_report: Report, prompt_eval_case: Callable[..., ScoredCase]
) -> None:
    for cases in ([], [prompt_eval_case(1, 3, 3, 3)]):
        page = prompt_eval_html.render(prompt_eval_report(cases), "zh")
        assert "<h2>没有安全问题</h2>" in page and words_of(labels(page)) == set()


@pytest.mark.parametrize("reporter", [prompt_eval_html, prompt_eval_markdown], ids=["html", "markdown"])
def test_english_is_unchanged_after_chinese(prompt_eval_report: Report, reporter: object) -> None:
    render, suffix = reporter.render, reporter.suffix  # type: ignore[attr-defined]
    render(prompt_eval_report(), "zh")
    golden = (GOLDEN / f"prompt_eval{suffix}").read_bytes().decode()
    assert render(prompt_eval_report()) == render(prompt_eval_report(), "en") == golden


def test_the_commands_write_the_language_that_is_chosen_or_that_of_the_locale(
    in_process: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "example")
    files = [tmp_path / "prompt-eval-results" / name for name in ("final_report.md", "final_report.html")]
    in_process("prompt-eval", "all", "example/prompt_a.md", "--lang", "zh")
    assert all("提示词评测：prompt_a.md" in file.read_text("utf-8").replace("\\_", "_") for file in files)
    english = in_process("prompt-eval", "report", "--lang", "en")
    assert all("26 of 36 cases passed (72 %)" in file.read_text("utf-8") for file in files)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    chinese = in_process("prompt-eval", "report")
    assert all("36 个用例中有 26 个通过（72%）" in file.read_text("utf-8") for file in files)
    assert chinese.out == english.out
