"""Every reporter on the same batch: stable to the byte, complete, and safe for what answers may contain.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden files; read them before committing.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook

from evalloom import catalog
from evalloom.core.model import Mismatch, Origin, Output, Run, Scored, Status, Usage, Verdict
from evalloom.reports import RunReporter, by_suffix, run_csv, run_json, run_jsonl, run_junit
from evalloom.reports.run_report import ReportRow, RunReport

GOLDEN = Path(__file__).parent / "golden"
FILE = "data/案例.jsonl"


def passed() -> ReportRow:
    output = Output({"answer": '北京, "the capital"', "sure": 0.97})
    usage = Usage(120, 30, 0.1, 1)
    run = Run(
        "k1",
        "capital",
        "快",
        0,
        1,
        "OK",
        output,
        duration_s=0.25,
        usage=usage,
        tags=("geo", "zh"),
        origin=Origin(FILE, 1, 1),
        raw={"id": 1, "tag": "geo", "question": "首都？", "hop_result": "old", "profile": "old"},
    )
    verdicts = [Verdict("names it", "contains", "output.answer", "passed", 1.0)]
    return run, Scored("k1", "passed", 1.0, verdicts, Usage(40, 10, 0.2, 1))


def failed() -> ReportRow:
    run = Run(
        "k2", "sum", "快", 1, 2, "UNCERTAIN", Output("=1+1\n3"), duration_s=1.5, origin=Origin(FILE, 2), raw={"id": 2}
    )
    mismatches = [Mismatch("", 2, "=1+1\n3"), Mismatch("items[0].text", "<b>", None)]
    verdicts = [
        Verdict("", "equals", "output", "failed", 0.0, "2 places differ", mismatches),
        Verdict("", "equals", "output.items", "passed", 1.0),
        Verdict("judge", "judge", "output", "unscored", None, "the judge's answer is no JSON"),
    ]
    return run, Scored("k2", "failed", 0.5, verdicts)


def broken() -> ReportRow:
    run = Run(
        "k3",
        "capital",
        "deep",
        0,
        1,
        "FAIL",
        Output("half an ans"),
        "no answer within 30 s [timed_out]",
        duration_s=30.0,
        raw={"input": {"question": "首都？"}, "error": "timeout"},
    )
    return run, Scored("k3", "error")


def skipped() -> ReportRow:
    verdicts = [Verdict("names it", "contains", "output.answer", "skipped", reason="needs a judge; give --judge")]
    return Run("k4", "sum", "deep", 0, 2), Scored("k4", "skipped", verdicts=verdicts)


BATCH: dict[str, Any] = {
    "id": "20260105-080000-ab12",
    "created_at": "2026-01-05T08:00:00+00:00",
    "datasets": [{"path": FILE, "dialect": "hop"}],
    "target": "prompt:ask.txt",
    "profiles": [
        {"name": "快", "run": "small", "verify": "large"},
        {"name": "deep", "run": "large", "verify": "large"},
    ],
    "models": {"small": "s-1", "large": ""},
    "params": {"快": {"temperature": 0.1}, "deep": {}},
}
SUMMARY = {"total": 4, "passed": 1, "failed": 1, "error": 1, "skipped": 1, "pass_rate": 0.3333333333333333}
GATES = [{"text": "pass_rate >= 90%", "holds": False, "actual": 0.333333333, "reason": "pass_rate is 0.333333"}]
REPORT = RunReport(BATCH, SUMMARY, GATES, [passed(), failed(), broken(), skipped()])
FOUR: list[Status] = ["passed", "failed", "passed", "failed"]
each_reporter = pytest.mark.parametrize("reporter", catalog.load().reporters, ids=lambda reporter: reporter.name)


def rendered(reporter: RunReporter, *rows: ReportRow) -> bytes:
    return written(reporter, RunReport(BATCH, SUMMARY, GATES, list(rows)) if rows else REPORT)


def written(reporter: RunReporter, report: RunReport) -> bytes:
    """What a reporter writes; of a workbook its cells, because a zip archive has the time in it."""
    stream = io.BytesIO()
    reporter.render(report, stream)
    if reporter.suffix != ".xlsx":
        return stream.getvalue()
    sheets = load_workbook(stream)
    rows = ([sheet.title, *(cell.value for cell in row)] for sheet in sheets.worksheets for row in sheet)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def table(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))


def answered(text: str) -> ReportRow:
    """A run in which every text that a user or a model may write is this one."""
    verdict = Verdict(text, "equals", text, "failed", 0.0, text, [Mismatch(text, text, {text: text})])
    run = Run("k", text, text, output=Output(text), tags=(text,), origin=Origin(text, 3), raw={text: text})
    return run, Scored("k", "failed", 0.0, [verdict])


@each_reporter
def test_stable_to_the_byte(reporter: RunReporter) -> None:
    golden = GOLDEN / (f"run{reporter.suffix}" if reporter.suffix != ".xlsx" else "run.xlsx.cells")
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN") == "1":
        golden.write_bytes(rendered(reporter))
    assert rendered(reporter) == golden.read_bytes()


@each_reporter
def test_rows_are_never_all_in_memory(reporter: RunReporter) -> None:
    class Rows:
        alive = 0
        most = 0

        def __iter__(self) -> Iterator[ReportRow]:
            for number in range(100):
                yield Counted("k", "c", number=number, output=Output("x" * 100)), Scored("k", "passed")

    class Counted(Run, frozen=True, weakref=True):
        def __post_init__(self) -> None:
            Rows.alive += 1
            Rows.most = max(Rows.most, Rows.alive)

        def __del__(self) -> None:
            Rows.alive -= 1

    reporter.render(RunReport({}, {}, [], Rows()), io.BytesIO())
    assert Rows.most <= 3


def test_a_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="gone through again"):
        RunReport({}, {}, [], (row for row in [passed()]))


def test_a_line_of_jsonl_has_every_key() -> None:
    lines = [json.loads(line) for line in rendered(run_jsonl).splitlines()]
    assert [list(line) for line in lines] == [KEYS] * 4
    assert list(lines[1]["verdicts"][2]) == [
        "name",
        "kind",
        "where",
        "status",
        "score",
        "reason",
        "follows",
        "mismatches",
    ]
    assert (lines[0]["tokens"], lines[0]["cost"], lines[0]["origin"]) == (200, 0.3, f"{FILE}:1")
    assert lines[0]["error"] is None and lines[0]["output"] == {"answer": '北京, "the capital"', "sure": 0.97}
    assert lines[2]["error"].startswith("no answer") and lines[2]["output"] is None


KEYS = [
    "case_id",
    "profile",
    "repeat",
    "outcome",
    "status",
    "output",
    "error",
    "first_wrong_step",
    "verdicts",
    "duration_s",
    "tokens",
    "cost",
    "tags",
    "origin",
]


def test_json_is_one_document_with_the_same_rows() -> None:
    report = json.loads(rendered(run_json))
    assert list(report) == ["schema_version", "tool", "batch", "summary", "gates", "runs"]
    assert report["runs"] == [json.loads(line) for line in rendered(run_jsonl).splitlines()]
    assert (report["batch"], report["summary"], report["gates"]) == (BATCH, SUMMARY, GATES)


def of_no_runs(reporter: RunReporter) -> str:
    return written(reporter, RunReport({}, {}, [], [])).decode()


@each_reporter
def test_a_batch_without_runs(reporter: RunReporter) -> None:
    assert of_no_runs(reporter) != rendered(reporter).decode()


def test_a_batch_without_runs_is_still_a_document() -> None:
    assert json.loads(of_no_runs(run_json))["runs"] == []
    assert len(ElementTree.fromstring(of_no_runs(run_junit))) == 0
    assert (of_no_runs(run_csv).count("\n"), of_no_runs(run_jsonl)) == (1, "")
    assert of_no_runs(by_suffix(Path("results.hop.jsonl"), catalog.load().reporters)) == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_there_is_no_nan(value: Any) -> None:
    run = Run("k", "c", output=Output(value))
    for line in (rendered(run_jsonl, (run, Scored("k", "passed"))), rendered(run_json, (run, Scored("k", "passed")))):
        assert b"NaN" not in line and b"Infinity" not in line and b"null" in line


def test_csv_columns_of_checks() -> None:
    first, second, third, _ = table(rendered(run_csv))
    checks = ["names it", "equals", "equals #2", "judge"]
    assert list(first)[15:] == [f"{name} {part}" for name in checks for part in ("status", "score")]
    assert (first["names it status"], first["names it score"], first["equals status"]) == ("passed", "1.0", "")
    assert (second["equals status"], second["equals #2 status"], second["judge score"]) == ("failed", "passed", "")
    assert second["reasons"] == "equals: 2 places differ\njudge: the judge's answer is no JSON"
    assert third["output"] == "" and third["error"] == "no answer within 30 s [timed_out]"


def test_csv_keeps_the_checks_that_have_no_column() -> None:
    verdicts = [Verdict(f"check {number}", "equals", "output", "passed", 1.0) for number in range(205)]
    (only,) = table(rendered(run_csv, (Run("k", "c"), Scored("k", "passed", 1.0, verdicts))))
    assert only["check 199 status"] == "passed" and "check 200 status" not in only
    assert [verdict["name"] for verdict in json.loads(only["more_checks"])] == [f"check {n}" for n in range(200, 205)]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1"])
def test_csv_cells_are_no_formulas(text: str) -> None:
    (only,) = table(rendered(run_csv, answered(text)))
    assert {only["case_id"], only["output"], only["profile"], only["tags"]} == {f"'{text}"}


def test_csv_numbers_stay_numbers() -> None:
    (only,) = table(rendered(run_csv, (Run("k", "c", output=Output(-5)), Scored("k", "passed", -0.5))))
    assert (only["output"], only["score"]) == ("-5", "-0.5")


@given(st.text())
def test_csv_reads_back(text: str) -> None:
    (only,) = table(rendered(run_csv, answered(text)))
    shown = f"'{text}" if text[:1] in tuple("=+-@\t\r＝＋－＠") else text
    assert (only["case_id"], only["output"], only["tags"]) == (shown, shown, shown)
    assert list(only.values())[15:] == ["failed", "0.0"]


def test_junit_counts() -> None:
    suites = ElementTree.fromstring(rendered(run_junit))
    counts = [[suite.get(kind) for kind in ("name", "tests", "failures", "errors", "skipped")] for suite in suites]
    assert counts == [["快", "2", "1", "0", "0"], ["deep", "2", "0", "1", "1"], ["gates", "1", "1", "0", "0"]]
    assert [suites.get(kind) for kind in ("tests", "failures", "errors", "skipped")] == ["5", "2", "1", "1"]
    assert [len(list(suites.iter(kind))) for kind in ("testcase", "failure", "error", "skipped")] == [5, 2, 1, 1]


def test_junit_tells_expected_and_actual() -> None:
    suites = ElementTree.fromstring(rendered(run_junit))
    case = next(case for case in suites.iter("testcase") if case.get("name") == "sum")
    assert (case.get("classname"), case.get("time")) == ("data/案例", "1.500000")
    failure = case[0]
    assert failure.get("message") == "equals: 2 places differ"
    assert '  at items[0].text\n    expected "<b>"\n    actual   null' in (failure.text or "")


@pytest.mark.req("WORK-8", "WORK-5")
@pytest.mark.parametrize(("pass_if", "failures"), [(None, 1), (0.6, 1), (0.5, 0)])
def test_junit_has_one_test_for_all_repeats_of_a_case(pass_if: float | None, failures: int) -> None:
    rows = [(Run(f"k{n}", "c", repeat=n, duration_s=1), Scored(f"k{n}", status)) for n, status in enumerate(FOUR)]
    stream = io.BytesIO()
    run_junit.render(RunReport({}, {"pass_if": pass_if}, [], rows), stream)
    suites = ElementTree.fromstring(stream.getvalue())
    assert [suites.get(name) for name in ("tests", "failures", "time")] == ["1", str(failures), "4.000000"]
    assert [element.get("message") for element in suites.iter("failure")] == [
        "2 of 4 repeats passed: failed"
    ] * failures


@given(st.text())
def test_junit_is_xml_for_any_text(text: str) -> None:
    suites = ElementTree.fromstring(rendered(run_junit, answered(text)))
    case, _ = suites.iter("testcase")
    legal = "".join(char for char in text if (char >= " " and char not in "\ufffe\uffff") or char in "\t\r\n")
    assert case.get("name") == legal and case[0].get("type") == "failed"


@each_reporter
def test_half_characters_are_no_stumbling_block(reporter: RunReporter) -> None:
    # \udcff is how Python spells a byte of a file name that is not UTF-8.
    text = rendered(reporter, answered("a\udcffb")).decode()
    assert "ab" in text or "udcff" in text or "a\ufffdb" in text


@pytest.mark.req("WORK-1")
def test_an_unscored_run_is_an_error_in_junit_unless_it_is_accepted() -> None:
    judge = Verdict("judge", "judge", "output", "unscored", None, "no judge")
    rows = [(Run("k", "a"), Scored("k", "unscored", verdicts=[judge])), (Run("l", "b"), Scored("l", "unscored"))]
    shown = {}
    for problem in ("unscored", "nothing_expected", ""):
        stream = io.BytesIO()
        by_suffix(Path("r.xml"), catalog.load().reporters).render(
            RunReport(BATCH, SUMMARY, [], rows, problem=problem), stream
        )
        tests = ElementTree.fromstring(stream.getvalue()).iter("testcase")
        shown[problem] = [(child.tag, child.get("type"), child.get("message")) for test in tests for child in test]
    nothing = ("skipped", "unscored", "nothing is expected of it")
    assert shown["unscored"] == [("error", "unscored", "judge: no judge"), nothing]
    assert shown["nothing_expected"][1] == ("error", *nothing[1:]) and shown[""][0][0] == "skipped"


@pytest.mark.req("WORK-1")
def test_a_table_says_of_which_runs_nothing_is_expected() -> None:
    (row,) = table(
        rendered(by_suffix(Path("r.csv"), catalog.load().reporters), (Run("l", "b"), Scored("l", "unscored")))
    )
    assert (row["status"], row["reasons"]) == ("unscored", "nothing is expected of it")


def test_junit_leads_to_a_case_that_only_a_digest_names() -> None:
    run = Run("k", "0123456789ab", number=1, origin=Origin("tests/faq.json", 7, 3), is_unnamed=True)
    scored = Scored("k", "failed", 0.0, [Verdict("equals", "equals", "output", "failed", 0.0, "expected 'a', got 'b'")])
    stream = io.BytesIO()
    run_junit.render(RunReport({}, {}, [], [(run, scored)]), stream)
    text = stream.getvalue().decode()
    assert 'name="0123456789ab"' in text and 'file="tests/faq.json" line="7"' in text
    assert "case tests/faq.json:7\n" in text
