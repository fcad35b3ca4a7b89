"""The verdicts and scores that promptfoo gives, for outputs of all kinds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.model import Case, Output, Run, Verdict
from evalloom.engine.score import grade_now
from evalloom.interop.promptfoo import asserts
from evalloom.interop.promptfoo.assert_types import NOT_SCORED, TYPES
from evalloom.matchers import Services

pytestmark = pytest.mark.req("WORK-31")


def verdict(written: dict[str, Any], output: Any, trace: list[dict[str, Any]] | None = None) -> Verdict:
    case = Case("c", {"q": "x"}, tuple(asserts.checks(written, {"q": "x"})))
    scored = grade_now(case, Run("k", "c", output=Output(output), trace=trace or []), Services(matchers=MATCHERS))
    assert scored is not None
    return scored.verdicts[0]


MATCHERS = catalog.load().matchers


@pytest.mark.parametrize(
    ("type_", "value", "output", "options", "passes", "score"),
    [
        ("bleu", "hello world", "hello world", {}, True, 1),
        ("bleu", "hello", "Hello", {}, True, 1),
        ("bleu", "a", "", {}, False, 0),
        ("bleu", "hello there my friend", "hello", {}, False, 0.0498),
        ("bleu", "the cat is on the mat", "the cat sat on the mat", {}, False, 0.0106),
        ("bleu", "你好 世界", "你好 世界", {}, True, 1),
        ("bleu", "the cat", "the the the", {}, False, 0.0),
        (
            "bleu",
            ["a fox", "the quick brown fox jumped over the lazy dog."],
            "The quick brown fox jumps over the lazy dog.",
            {},
            True,
            0.5969,
        ),
        ("gleu", "hello world", "hello. world.", {}, True, 1),
        ("gleu", "hello", "Hello", {}, True, 1),
        ("gleu", "hello there my friend", "hello", {}, False, 0.1),
        ("gleu", "the cat is on the mat", "the cat sat on the mat", {}, True, 0.5),
        ("gleu", "b", "a", {}, False, 0),
        (
            "gleu",
            ["a fox", "the quick brown fox jumped over the lazy dog."],
            "The quick brown fox jumps over the lazy dog.",
            {},
            True,
            0.6667,
        ),
        ("rouge-n", "do not stop", "don't stop", {}, False, 0.6667),
        ("rouge-n", "The cat sat.", "the cat sat", {}, True, 0.8571),
        ("rouge-n", "I'm going to go", "I'm gonna go", {}, False, 0.6),
        ("rouge-n", "he said hi ok", 'He said "hi" (ok)', {}, False, 0.6667),
        ("rouge-n", "你好，世界", "你好，世界", {}, True, 1),
        ("rouge-n", "u.s. end", "U.S. end.", {}, True, 0.8),
        ("rouge-n", "price 3.50 and 10", "price $3.50 & 10%", {}, False, 0.6),
        ("rouge-n", "a", "", {}, False, 0),
        ("rouge-n", "more than it is can not", "more'n 'tis cannot", {}, False, 0.6667),
        ("levenshtein", "sitting", "kitten", {}, True, 1),
        ("levenshtein", "abcdefg", "a", {}, False, 0),
        ("levenshtein", "", "😀", {"threshold": 1}, False, 0),
        ("levenshtein", "", "😀", {"threshold": 2}, True, 1),
        ("levenshtein", "", "", {}, True, 1),
        ("levenshtein", "cafe", "café", {"threshold": 0}, False, 0),
        ("word-count", 3, "a b  c\n", {}, True, 1),
        ("word-count", {"min": 2}, "a b", {}, True, 1),
        ("word-count", {"max": 1}, "a b", {}, False, 0),
        ("word-count", {"min": 1, "max": 3}, "a b c", {}, True, 1),
        ("word-count", "2", "a b", {}, True, 1),
        ("word-count", 0, "", {}, True, 1),
        ("word-count", 1, "你好世界", {}, True, 1),
        ("word-count", 2, "a\xa0b", {}, True, 1),
        ("word-count", {"min": 3, "max": 5}, "a b", {}, False, 0),
        ("is-html", None, "<p>a</p>", {}, True, 1),
        ("contains-html", None, "<p>a</p>", {}, True, 1),
        ("is-html", None, "<div>x", {}, True, 1),
        ("contains-html", None, "<div>x", {}, True, 1),
        ("is-html", None, "x<br>", {}, False, 0),
        ("contains-html", None, "x<br>", {}, True, 1),
        ("is-html", None, "plain", {}, False, 0),
        ("contains-html", None, "plain", {}, False, 0),
        ("is-html", None, "<foo/>", {}, False, 0),
        ("contains-html", None, "<foo/>", {}, False, 0),
        ("is-html", None, "<!DOCTYPE html>", {}, False, 0),
        ("contains-html", None, "<!DOCTYPE html>", {}, True, 1),
        ("is-html", None, "<p>a</p>\ntail", {}, False, 0),
        ("contains-html", None, "<p>a</p>\ntail", {}, True, 1),
        ("is-html", None, "<x-y>1</x-y>", {}, True, 1),
        ("contains-html", None, "<x-y>1</x-y>", {}, True, 1),
        ("is-html", None, "<td>1</td>", {}, False, 0),
        ("contains-html", None, "<td>1</td>", {}, True, 1),
        ("is-html", None, "<body>x</body>y", {}, True, 1),
        ("contains-html", None, "<body>x</body>y", {}, True, 1),
        ("is-html", None, '<?xml version="1.0"?><p/>', {}, False, 0),
        ("contains-html", None, '<?xml version="1.0"?><p/>', {}, True, 1),
        ("is-html", None, "", {}, False, 0),
        ("contains-html", None, "", {}, False, 0),
        ("contains-html", None, "&amp; &lt;", {}, False, 0),
        ("contains-html", None, "1 < 2 > 0", {}, False, 0),
        ("contains-html", None, "see <a href='x'>y</a>", {}, True, 1),
        ("contains-html", None, "```html\n<p>x</p>\n```", {}, True, 1),
        ("is-xml", None, "<a/>", {}, True, 1),
        ("contains-xml", None, "<a/>", {}, True, 1),
        ("is-xml", None, "<a><b/></a>", {}, True, 1),
        ("contains-xml", None, "<a><b/></a>", {}, True, 1),
        ("is-xml", None, "<a>", {}, False, 0),
        ("contains-xml", None, "<a>", {}, False, 0),
        ("is-xml", None, "<a></b>", {}, False, 0),
        ("contains-xml", None, "<a></b>", {}, False, 0),
        ("is-xml", None, "x <a>1</a> y", {}, False, 0),
        ("contains-xml", None, "x <a>1</a> y", {}, True, 1),
        ("is-xml", None, "<a/><b/>", {}, False, 0),
        ("contains-xml", None, "<a/><b/>", {}, True, 1),
        ("is-xml", None, "<a b/>", {}, False, 0),
        ("contains-xml", None, "<a b/>", {}, True, 1),
        ("is-xml", None, "<!DOCTYPE a><a/>", {}, True, 1),
        ("contains-xml", None, "<!DOCTYPE a><a/>", {}, True, 1),
        ("is-xml", None, "<a>&nbsp;</a>", {}, False, 0),
        ("contains-xml", None, "<a>&nbsp;</a>", {}, True, 1),
        ("is-xml", None, "<n:a/>", {}, False, 0),
        ("contains-xml", None, "<n:a/>", {}, True, 1),
        ("is-xml", None, "text", {}, False, 0),
        ("contains-xml", None, "text", {}, False, 0),
        ("is-xml", None, "<a>1 < 2</a>", {}, False, 0),
        ("contains-xml", None, "<a>1 < 2</a>", {}, True, 1),
        ("is-xml", None, "<p>one<br>two</p>", {}, False, 0),
        ("contains-xml", None, "<p>one<br>two</p>", {}, False, 0),
        ("is-xml", "a.b", "<a><b>1</b></a>", {}, True, 1),
        ("is-xml", "a.c", "<a><b>1</b></a>", {}, False, 0),
        ("is-xml", ["a.b.1"], "<a><b>1</b><b>2</b></a>", {}, True, 1),
        ("is-xml", {"requiredElements": ["a.b", "a.c"]}, "<a><b/><c/></a>", {}, True, 1),
        ("contains-xml", "answer", "<thinking>hm</thinking> so <answer>4</answer>", {}, True, 1),
        ("contains-xml", "a.b", "<a><b>1</b></a><a><c>2</c></a>", {}, False, 0),
        ("contains-xml", "a.b, a.c", "```xml\n<a><b>x</b></a>\n```", {}, False, 0),
        ("is-sql", None, "SELECT id, name FROM users", {}, True, 1),
        ("is-sql", None, "SELECT a b FROM t", {}, False, 0),
        ("is-sql", None, "hello world", {}, False, 0),
        ("is-sql", None, "SELECT FROM t", {}, False, 0),
        ("is-sql", None, "SELECT a, FROM t", {}, False, 0),
        ("is-sql", None, "SELECT `a FROM t", {}, False, 0),
        ("is-sql", None, "CREATE TABLE t (a INT)", {}, True, 1),
        ("is-sql", None, "WITH x AS (SELECT 1 AS a) SELECT a FROM x", {}, True, 1),
        ("is-sql", None, "SELECT a FROM t; SELECT b FROM u;", {}, True, 1),
        ("is-sql", None, "SELECT * FROM generate_series(1,2)", {}, False, 0),
        ("is-sql", None, "", {}, False, 0),
        ("contains-sql", None, "Here:\n```sql\nSELECT a FROM t\n```", {}, True, 1),
        ("contains-sql", None, "```\nnothing\n```", {}, False, 0),
        ("contains-sql", None, "```python\nSELECT a FROM t\n```\nno", {}, False, 0),
        ("contains-sql", None, "SELECT 1", {}, True, 1),
        (
            "is-sql",
            {"databaseType": "PostgreSQL", "allowedTables": ["select::null::t"]},
            "SELECT a FROM t",
            {},
            True,
            1,
        ),
        (
            "is-sql",
            {"databaseType": "PostgreSQL", "allowedTables": ["select::null::t"]},
            "SELECT a FROM u",
            {},
            False,
            0,
        ),
        ("is-sql", {"databaseType": "PostgreSQL", "allowedTables": ["select::null::t"]}, "DELETE FROM t", {}, False, 0),
        ("is-sql", {"databaseType": "PostgreSQL", "allowedTables": ["select::null::t"]}, "DROP TABLE t", {}, False, 0),
        (
            "is-sql",
            {"databaseType": "MySQL", "allowedColumns": ["select::null::a", "select::t::b"]},
            "SELECT a FROM t",
            {},
            True,
            1,
        ),
        (
            "is-sql",
            {"databaseType": "MySQL", "allowedColumns": ["select::null::a", "select::t::b"]},
            "SELECT c FROM t",
            {},
            False,
            0,
        ),
        (
            "is-sql",
            {"databaseType": "MySQL", "allowedColumns": ["select::null::a", "select::t::b"]},
            "SELECT * FROM t",
            {},
            False,
            0,
        ),
        (
            "is-sql",
            {"databaseType": "MySQL", "allowedColumns": ["select::null::a", "select::t::b"]},
            "INSERT INTO t (a) VALUES (1)",
            {},
            False,
            0,
        ),
        ("tool-call-f1", ["a", "b"], [{"function": {"name": "a", "arguments": "{}"}}], {}, False, 0.6667),
        ("tool-call-f1", ["a", "b"], {"tool_calls": [{"function": {"name": "a"}}, {"name": "b"}]}, {}, True, 1),
        ("tool-call-f1", ["a", "b"], [{"type": "tool_use", "name": "b"}], {}, False, 0.6667),
        ("tool-call-f1", ["a", "b"], {"functionCall": {"name": "a"}}, {}, False, 0.6667),
        ("tool-call-f1", ["a", "b"], 'text\n{"type":"tool_use","name":"a"}\n[{"name":"b"}]', {}, True, 1),
        ("tool-call-f1", ["a", "b"], "none", {}, False, 0),
        ("tool-call-f1", "a, b", [{"name": "a"}], {"threshold": 0.5}, True, 0.6667),
        ("contains-json", None, "123", {}, False, 0),
        ("contains-json", None, "[1]", {}, False, 0),
        ("contains-json", None, '[{"a": 1}]', {}, True, 1),
        ("contains-json", None, 'say {"a": 1}', {}, True, 1),
        ("contains-json", None, "null", {}, False, 0),
        ("contains-any", "a", "a,b", {}, True, 1),
        ("contains-any", ",,x,,y", "x", {}, True, 1),
        ("contains-any", '"Hello, World", z', "Hello, World", {}, True, 1),
    ],
)
def test_an_assert_has_the_verdict_of_promptfoo(
    type_: str, value: Any, output: Any, options: dict[str, Any], passes: bool, score: float
) -> None:
    written = {"type": type_, **options, **({} if value is None else {"value": value})}
    found = verdict(written, output)
    assert found.status == ("passed" if passes else "failed"), found.reason
    assert found.score == pytest.approx(score, abs=1e-4)
    assert verdict({**written, "type": f"not-{type_}"}, output).status == ("failed" if passes else "passed")


@pytest.mark.parametrize(
    ("value", "stop", "passes"),
    [("stop", "stop", True), ("STOP", "stop", True), ("stop", "length", False), ("stop", "", False)],
)
def test_the_reason_for_the_end_of_an_answer(value: str, stop: str, passes: bool) -> None:
    trace = [{"type": "llm", "llm": "x", "request": {}, "response": {"stop": stop}}]
    found = verdict({"type": "finish-reason", "value": value}, "a", trace)
    assert found.status == ("passed" if passes else "failed")


TOOLS = [{"type": "function", "function": {"name": "a", "parameters": {"type": "object", "required": ["x"]}}}]


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([{"function": {"name": "a", "arguments": '{"x": 1}'}}], ""),
        ({"tool_calls": [{"function": {"name": "a", "arguments": '{"x": 1}'}}]}, ""),
        ([{"function": {"name": "a", "arguments": "{}"}}], "wrong arguments"),
        ([{"function": {"name": "a", "arguments": "{x"}}], "not JSON"),
        ([{"function": {"name": "b", "arguments": "{}"}}], "not offered"),
        ([{"function": {"name": "a"}}], "expected calls of tools"),
        ("no calls", "expected calls of tools"),
        ("MCP Tool Result (a): ok", ""),
        ("MCP Tool Error (a): no", "a tool failed"),
    ],
)
def test_calls_of_tools_fit_the_tools_of_the_request(calls: Any, reason: str) -> None:
    trace = [{"type": "llm", "llm": "x", "request": {"tools": TOOLS}, "response": {"stop": ""}}]
    found = verdict({"type": "is-valid-openai-tools-call"}, calls, trace)
    assert found.status == ("failed" if reason else "passed") and reason in found.reason


def test_a_content_filter_fails_guardrails() -> None:
    trace = [{"type": "llm", "llm": "x", "request": {}, "response": {"stop": "content_filter"}}]
    assert verdict({"type": "guardrails"}, "a", trace).status == "failed"
    assert verdict({"type": "not-guardrails"}, "a", trace).status == "passed"
    assert verdict({"type": "guardrails"}, "a").status == "passed"


def test_the_docs_list_every_type() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+`) \| (.+) \|$", page.partition("### Asserts")[2].partition("```")[0], re.MULTILINE)
    listed = {name: text.startswith("not scored") for names, text in rows for name in re.findall(r"`([^`]+)`", names)}
    assert listed == {name: name in NOT_SCORED for name in TYPES}
