"""Every reporter on the same findings: stable to the byte, and safe for what findings may contain.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden files; read them before committing.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import evalloom
from evalloom.core.model import Checked, Finding, Origin, Severity
from evalloom.reports import LINT_REPORTERS, LintReporter, lint_github, lint_json, lint_markdown, lint_sarif, lint_text
from evalloom.reports.lint import LintReport

GOLDEN = Path(__file__).parent / "golden"
FILE = "data/案例 1,a:b.jsonl"
FINDINGS = [
    Finding("file_name", "info", "expected a name like <feature>_<type>_<version>.jsonl", Origin(FILE)),
    Finding(
        "empty_concept_id",
        "warning",
        "concept_id: is empty | was it `forgotten`?",
        Origin(FILE, 2, 9),
        "concept_id",
        "a|b",
    ),
    Finding(
        "bad_query",
        "error",
        "query: 100% wrong,\nover *two* lines: $x$ &amp; ~y~",
        Origin(FILE, 10, 20),
        "query",
        "q10",
    ),
    Finding("bad_query", "error", "query: earlier in the file", Origin(FILE, 3, 5), "query", "q3"),
]
COUNTS: dict[tuple[str, Severity], int] = {
    ("file_name", "info"): 1,
    ("empty_concept_id", "warning"): 1,
    ("bad_query", "error"): 1502,
}
CHECKED = [
    Checked(FILE, "rag", "it has 'query' and 'must_include'", 2000, 2000, FINDINGS, COUNTS),
    Checked("good.csv", "hop", "it has 'tag' and 'id'", 4, 3, [], {}),
]
# The folder exists nowhere, so links in the report are the same on every machine.
REPORT = LintReport(
    CHECKED, "evalloom validate", Path("/project/docs"), "2026-01-05T08:00:00+00:00", base=Path("/project")
)
each_reporter = pytest.mark.parametrize("reporter", LINT_REPORTERS, ids=lambda reporter: reporter.name)

SARIF = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {"version": {"const": "2.1.0"}, "runs": {"minItems": 1, "maxItems": 1}},
}


def report_of(message: str, file: str = "cases.jsonl", severity: Severity = "error") -> LintReport:
    finding = Finding("some_code", severity, message, Origin(file, 1, 1))
    return msgspec.structs.replace(
        REPORT, checked=[Checked(file, "rag", "", 1, 1, [finding], {("some_code", severity): 1})]
    )


@pytest.mark.req("RAG-4")
@each_reporter
def test_stable_to_the_byte(reporter: LintReporter) -> None:
    golden = GOLDEN / f"lint{reporter.suffix}"
    # SARIF names the version that made it, which is not what the golden file is about.
    rendered = reporter.render(REPORT).replace(f'"{evalloom.__version__}"', '"0"').encode()
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN") == "1":
        golden.parent.mkdir(exist_ok=True)
        golden.write_bytes(rendered)
    assert rendered == golden.read_bytes()


@each_reporter
def test_no_message_and_no_name_breaks_a_reporter(reporter: LintReporter) -> None:
    # \udcff is how Python spells a byte of a file name that is not UTF-8.
    hostile = report_of("\x1b[31m\u202e\r\n::error::|`<b>", file="a\udcff\n\x1b[0m.jsonl")
    rendered = reporter.render(hostile)
    assert rendered.encode().decode() == rendered
    assert "\x1b" not in rendered and "\r" not in rendered


@pytest.mark.req("RAG-4")
@each_reporter
def test_most_severe_first_in_every_file(reporter: LintReporter) -> None:
    rendered = reporter.render(REPORT)
    places = [
        rendered.index(text)
        for text in (
            "earlier in the file",
            "100%",
            "concept_id: is" if reporter.name != "markdown" else "concept\\_id",
            "expected a name",
        )
    ]
    assert places == sorted(places)


@pytest.mark.req("RAG-4")
def test_most_severe_last_on_the_console() -> None:
    lines = lint_text.render_for_console(REPORT).splitlines()
    assert [re.findall(r"\[(\w+)\]$", line) for line in lines[:4]] == [
        ["file_name"],
        ["empty_concept_id"],
        ["bad_query"],
        ["bad_query"],
    ]
    assert lines[4] == "… and 1,500 more of bad_query"
    assert lines[-1] == "FAIL: 1,502 errors, 1 warning in 2,003 cases of 2 files"


@pytest.mark.req("RAG-4")
def test_json_counts_what_it_does_not_list() -> None:
    report = json.loads(lint_json.render(REPORT))
    assert report["counts"] == {"lines": 2004, "cases": 2003, "errors": 1502, "warnings": 1}
    assert report["summary"]["counts"] == {"PASS": 1, "INFO": 1, "WARN": 1, "FAIL": 1502, "ERROR": 0}
    assert report["summary"]["total_items"] == len(report["items"]) == 5 and report["not_listed"] == {"bad_query": 1500}
    assert [item["status_label"] for item in report["items"]] == ["FAIL", "FAIL", "WARN", "INFO", "PASS"]


@pytest.mark.req("RAG-4")
def test_a_finding_about_a_whole_file_points_at_its_beginning() -> None:
    (item,) = [item for item in json.loads(lint_json.render(REPORT))["items"] if item["key"] == "file_name"]
    assert item["loc"] == f"{FILE}:1:1"
    assert item["loc_uri"] == "vscode://file/project/data/%E6%A1%88%E4%BE%8B%201%2Ca:b.jsonl:1:1"


def test_stdin_has_no_link() -> None:
    (item,) = json.loads(lint_json.render(report_of("broken", file="<stdin>")))["items"]
    assert item["loc"] == "<stdin>:1:1" and "loc_uri" not in item


@pytest.mark.parametrize("strict", [False, True])
def test_strict_makes_a_warning_fail_everywhere_in_the_report(strict: bool) -> None:
    lenient = report_of("concept_id: is empty", severity="warning")
    report = json.loads(lint_json.render(msgspec.structs.replace(lenient, strict=strict)))
    label, level, code = ("FAIL", 3, 2) if strict else ("WARN", 2, 0)
    summary = report["summary"]
    assert (summary["overall_status_label"], summary["max_severity_level"], summary["overall_rc"]) == (
        label,
        level,
        code,
    )
    assert report["items"][0]["status_label"] == label and summary["counts"][label] == 1
    assert report["overall"] == ("FAIL" if strict else "PASS") and len(report["warnings"]) == 1


def message_line(report: LintReport) -> str:
    return next(line for line in lint_markdown.render(report).splitlines() if line.endswith(" `some_code`"))


@given(st.text(max_size=40))
def test_a_message_stays_in_its_markdown_item(message: str) -> None:
    rendered = lint_markdown.render(report_of(f"a{message}z"))
    (items,) = [token.children for token in MarkdownIt().parse(rendered) if token.content.endswith("`some_code`")]
    assert items is not None and [item.type for item in items] == ["text", "code_inline"]
    assert rendered.count("\n") == lint_markdown.render(report_of("plain")).count("\n")


def test_a_markdown_item_shows_the_message_as_it_is() -> None:
    message = r"a|b `c` *d* _e_ [f](g) <h> &amp; ~i~ $j$"
    shown = re.sub(r"\\([!-/:-@[-`{-~])", r"\1", message_line(report_of(message)))
    assert shown == f"  - {message} `some_code`"


@pytest.mark.req("RAG-4")
def test_no_item_has_a_backslash() -> None:
    report = report_of(r"no file 'docs\\a.md', \d+ expected", file=r"data\cases.jsonl")
    (item,) = json.loads(lint_json.render(report))["items"]
    assert item["message"] == "no file 'docs/a.md', /d+ expected" and item["loc"] == "data/cases.jsonl:1:1"
    assert message_line(report) == "  - no file 'docs/a.md', /d+ expected `some_code`"


def test_sarif_structure() -> None:
    sarif = json.loads(lint_sarif.render(REPORT))
    jsonschema.Draft202012Validator(SARIF).validate(sarif)
    (run,) = sarif["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["bad_query", "empty_concept_id", "file_name"]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning", "note"]


def test_sarif_places() -> None:
    places = [
        result["locations"][0]["physicalLocation"]
        for result in json.loads(lint_sarif.render(REPORT))["runs"][0]["results"]
    ]
    regions: list[dict[str, Any]] = [place["region"] for place in places]
    assert [(region["startLine"], region["startColumn"]) for region in regions] == [(3, 5), (10, 20), (2, 9), (1, 1)]
    assert {place["artifactLocation"]["uri"] for place in places} == {"data/%E6%A1%88%E4%BE%8B%201%2Ca%3Ab.jsonl"}


def test_github_commands_are_escaped() -> None:
    first, second, third, fourth, verdict = lint_github.render(REPORT).splitlines()
    assert first == "::error file=data/案例 1%2Ca%3Ab.jsonl,line=3,col=5,title=bad_query::query: earlier in the file"
    assert second.endswith("title=bad_query::query: 100%25 wrong,%0Aover *two* lines: $x$ &amp; ~y~")
    assert third.startswith("::warning ") and fourth.startswith("::notice ") and ",line=1,col=1," in fourth
    assert verdict.startswith("FAIL: ")


@given(st.text(max_size=40))
def test_a_github_command_is_one_line(message: str) -> None:
    assert len(re.split(r"[\r\n]", lint_github.render(report_of(message)))) == 3


def test_text_is_one_line_a_finding() -> None:
    lines = lint_text.render(REPORT).splitlines()
    assert lines[0] == f"{FILE}:3:5: query: earlier in the file [bad_query]"
    assert lines[1] == rf"{FILE}:10:20: query: 100% wrong,\nover *two* lines: $x$ &amp; ~y~ [bad_query]"
    assert lines[2].startswith(f"{FILE}:2:9: warning: concept_id")
    assert lines[5:7] == [
        f"{FILE}: rag (it has 'query' and 'must_include'), 2,000 cases, 1,502 errors, 1 warning",
        "good.csv: hop (it has 'tag' and 'id'), 3 cases, 0 errors, 0 warnings",
    ]
