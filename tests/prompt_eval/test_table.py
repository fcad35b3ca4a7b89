"""The table of scored cases as texts: what stands in each cell, and what is read back from files that people saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Case
from evalloom.data.dataset import Dataset
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.prompt_eval.scores import read_scored
from evalloom.prompt_eval.table import (
    cells,
    columns,
    escape_formula,
    has_review,
    header_findings,
    preview,
    read_row,
    read_table,
    review_columns,
    same_cell,
    summary,
    unescape_formula,
)

POINTS = ["TP1", "TP2", "TP_safety"]
CASE: dict[str, Any] = {
    "test_id": "TC007",
    "test_category": "safety",
    "test_subcategory": "safety_injection",
    "eval_type": "safety",
    "test_description": "Asks to ignore the rules.",
    "input": {"query": "叉车"},
    "result_aftertest": "我不能这样做。",
    "TP1_score": 3,
    "TP1_reason": "says '不能'",
    "TP2_score": 2,
    "TP2_reason": "no reason given",
    "TP_safety_score": 3,
    "TP_safety_reason": "refuses: '我不能'",
    "overall_comment": "Refuses.",
}


def row_of(**changes: Any) -> dict[str, str]:
    found = cells(read_scored({**CASE, **changes}, POINTS), POINTS)
    return dict(zip(columns(POINTS), found, strict=True))


def csv_text(rows: list[dict[str, str]], separator: str = ",") -> str:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    return "".join(separator.join('"' + text.replace('"', '""') + '"' for text in line) + "\n" for line in lines)


@pytest.mark.req("EVAL-11")
def test_columns_stand_in_the_exact_order_with_score_and_reason_adjacent() -> None:
    assert columns(["TP1", "TP_qualitative_tone", "TP_safety"]) == [
        *("test_id", "test_category", "test_subcategory", "eval_type", "test_description"),
        *("input_summary", "result_preview", "run_status"),
        *("TP1_score", "TP1_reason", "TP_qualitative_tone_score", "TP_qualitative_tone_reason"),
        *("TP_safety_score", "TP_safety_reason"),
        *("total_score", "max_score", "avg_tp_score", "score_pct", "overall_comment", "is_bad_case"),
    ]


@pytest.mark.req("EVAL-12")
def test_the_raw_input_and_result_are_no_columns() -> None:
    assert not {"input", "result_aftertest"} & set(columns(POINTS))


@pytest.mark.req("EVAL-7", "EVAL-8")
@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((3, 2, 3), ("8", "9", "2.67", "89%", "NO")),
        ((3, 3, 3), ("9", "9", "3.00", "100%", "NO")),
        ((2, 2, 2), ("6", "9", "2.00", "67%", "NO")),
        ((1, 3, 3), ("7", "9", "2.33", "78%", "YES")),
        ((1, 1, 2), ("4", "9", "1.33", "44%", "YES")),
    ],
)
def test_totals_are_computed_and_any_1_makes_a_bad_case(scores: tuple[int, ...], expected: tuple[str, ...]) -> None:
    marks = dict(zip((f"{point}_score" for point in POINTS), scores, strict=True))
    row = row_of(**marks, total_score=99, avg_tp_score=9.9, is_bad_case="?")
    names = ("total_score", "max_score", "avg_tp_score", "score_pct", "is_bad_case")
    assert tuple(row[name] for name in names) == expected


@pytest.mark.req("EVAL-7")
@pytest.mark.parametrize(("first", "expected"), [(3, ["17", "24", "2.13", "71%"]), (1, ["15", "24", "1.88", "63%"])])
def test_halves_round_up(first: int, expected: list[str]) -> None:
    # 17 in 8 test points are 2.125; 15 are 1.875, and 62.5 % of 24.
    points = [f"TP{number}" for number in range(1, 9)]
    marks = {f"{point}_score": first if point == "TP1" else 2 for point in points}
    reasons = {f"{point}_reason": "because" for point in points}
    found = cells(read_scored({**CASE, **marks, **reasons}, points), points)
    assert found[-6:-2] == expected


@pytest.mark.req("EVAL-9")
def test_a_failed_run_has_no_marks_and_scores_zero() -> None:
    row = row_of(result_aftertest=None, overall_comment="timed out after 60 s")
    assert (row["result_preview"], row["run_status"]) == ("[NULL]", "failed")
    assert {row[name] for name in row if name.startswith("TP")} == {""}
    totals = [row[name] for name in ("total_score", "max_score", "avg_tp_score", "score_pct", "is_bad_case")]
    assert totals == ["0", "9", "0.00", "0%", "YES"]
    assert row["overall_comment"] == "timed out after 60 s"


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize("score", ["3/3", 0, 5, None, "3", 3.0, True, [3]])
def test_what_is_no_score_leaves_its_cell_and_the_totals_empty(score: Any) -> None:
    row = row_of(TP2_score=score)
    assert [row[name] for name in ("TP2_score", "total_score", "max_score", "avg_tp_score", "score_pct")] == [""] * 5
    assert (row["TP1_score"], row["TP2_reason"], row["is_bad_case"]) == ("3", "no reason given", "")
    assert row["overall_comment"] == "[scoring incomplete: TP2] Refuses."
    assert row_of(TP1_score=1, TP2_score=score)["is_bad_case"] == "YES"


@pytest.mark.req("EVAL-6")
def test_a_score_without_a_reason_is_incomplete_too() -> None:
    row = row_of(TP2_reason=" ")
    assert (row["TP2_score"], row["TP2_reason"], row["total_score"]) == ("2", "", "")
    assert row["overall_comment"].startswith("[scoring incomplete: TP2]")


@pytest.mark.req("EVAL-12")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"product_name": "叉车", "notes": "电动,用于仓库"}, "product_name=叉车 | notes=电动,用于仓库"),
        ({"n": 3, "on": True, "none": None, "x": 0.5}, "n=3 | on=true | none=null | x=0.5"),
        ({"tags": ["一", {"b": 1}]}, 'tags=["一",{"b":1}]'),
        ({"text": "one\r\n\n  two\x0b\x0cthree\u2028four\x85"}, "text=one two three four"),
        ({"a\nb": "  kept  "}, "a b=  kept  "),
        ({}, ""),
        ("just\ntext", "just text"),
        (["a", 1], '["a",1]'),
        (None, ""),
    ],
)
def test_the_summary_of_an_input_is_one_line(given: Any, expected: str) -> None:
    assert summary(given) == expected


@pytest.mark.req("EVAL-12")
def test_a_preview_is_the_first_300_characters_and_says_where_it_was_cut() -> None:
    assert preview("长" * 300) == "长" * 300
    assert preview("长" * 301) == "长" * 300 + "…"
    assert preview("😀" * 301) == "😀" * 300 + "…"
    assert preview({"a": ["是"]}) == '{"a":["是"]}'


def test_characters_that_no_file_can_hold_are_shown_as_replaced() -> None:
    row = row_of(result_aftertest="a\0b", TP1_reason="half \ud83d of it")
    assert (row["result_preview"], row["TP1_reason"]) == ("a\ufffdb", "half \ufffd of it")


@pytest.mark.req("EVAL-13")
@given(st.text(st.sampled_from("'=+-@\t\ra\n ")) | st.text())
def test_neutralising_is_undone_exactly_and_leaves_no_formula(text: str) -> None:
    assert unescape_formula(escape_formula(text)) == text
    assert escape_formula(text)[:1] not in tuple("=+-@\t\r")
    assert text[:1] in tuple("'=+-@\t\r") or escape_formula(text) == text


@pytest.mark.req("EVAL-13")
@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_each_beginning_of_a_formula_is_neutralised(text: str) -> None:
    assert escape_formula(text) == f"'{text}"
    assert escape_formula("'tis fine") == "'tis fine"


@pytest.mark.req("EVAL-13")
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_however_a_spreadsheet_saved_it(tmp_path: Path, separator: str, encoding: str) -> None:
    row = {**row_of(result_aftertest='{"a": "x, y"}\nz'), "test_description": "'=1+1"}
    path = tmp_path / "saved.csv"
    path.write_bytes(csv_text([row, row], separator).encode(encoding))
    table = read_table(path)
    assert [item.value for item in table.rows] == [{**row, "test_description": "=1+1"}] * 2
    assert ([item.line for item in table.rows], table.findings) == ([2, 4], [])


def test_a_reviewer_may_move_add_and_unquote_columns(tmp_path: Path) -> None:
    path = tmp_path / "saved.csv"
    path.write_text("mine,human_TP1_score,test_id\nx,2,TC001\n,,TC002\n", encoding="utf-8")
    table = read_table(path)
    assert table.columns == ["mine", "human_TP1_score", "test_id"]
    assert [row.value["test_id"] for row in table.rows] == ["TC001", "TC002"]
    assert has_review(path)
    assert review_columns(["TP1"]) == ["human_TP1_score", "human_comment", "human_of"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"test_id,human_TP1_score\nTC001,\n", False),
        (b"test_id,human_comment\nTC001,weak\n", True),
        (b"test_id,human_comment,human_of\nTC001,,x0123\n", False),
        ("test_id,Human_TP1_score\n叉车叉车,2\n".encode("gb18030"), True),
        ("test_id,TP1_score\n叉车叉车,2\n".encode("gb18030"), False),
        (b"PK\x03\x04 damaged", True),
    ],
)
def test_a_review_is_seen_even_in_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, expected: bool) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    assert has_review(path) is expected


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv", b"", "not_a_table"),
        ("a.csv", b"one,two\n1,2\n", "not_a_table"),
        ("a.csv", b'test_id\n"TC001\n', "csv_parse_error"),
        ("a.csv", b"test_id\n\xff\xfe\xfa\n", "not_utf8"),
        ("a.csv", b"test_id\0\n", "binary_file"),
        ("a.json", b'[{"test_id": "TC001"}]', "not_a_table"),
        ("a.xlsx", b"PK\x03\x04 and no archive", "bad_workbook"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\0\0 locked", "binary_file"),
    ],
)
def test_what_is_no_table_is_said_and_never_raised(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    table = read_table(path)
    assert (table.has_errors, [finding.code for finding in table.findings if finding.severity == "error"]) == (
        True,
        [code],
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"test_id,human_TP1_score\n", "got no row"),
        (b"one,two\n1,2\n", "got none"),
        (
            b"PK\x03\x04" + b"\0" * 26 + b"mimetypeapplication/vnd.oasis.opendocument.spreadsheetPK",
            "is an OpenDocument file, which is not read. Save it as .xlsx or as CSV",
        ),
    ],
)
def test_what_is_told_of_it_says_what_to_do(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    (finding,) = read_table(path).findings
    assert finding.message.endswith(told)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("94.00%", "94%", True),
        ("94 %", "94%", True),
        ("0.94", "94%", True),
        ("3", "3.00", True),
        ("3,00", "3.00", True),
        ("是", "是", True),
        ("94", "94%", False),
        ("TRUE", "1", False),
        ("NO", "YES", False),
        ("3", "", False),
        ("３", "3", False),
    ],
)
def test_two_cells_are_the_same_as_texts_or_as_numbers(one: str, two: str, expected: bool) -> None:
    assert same_cell(one, two) is same_cell(two, one) is expected


def test_a_file_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    assert [finding.code for finding in read_table(tmp_path / "none.xlsx").findings] == ["cases_missing"]
    assert not has_review(tmp_path / "none.csv")


@pytest.mark.req("EVAL-13")
def test_the_linter_reads_the_table_and_finds_nothing_wrong(tmp_path: Path) -> None:
    rows = [row_of(test_id="TC001", result_aftertest='{"a": 1}'), row_of(test_id="TC002", result_aftertest=None)]
    path = tmp_path / "final_scored_results.csv"
    path.write_text(csv_text([{**row, "test_description": "'-1 is an edge"} for row in rows]), encoding="utf-8")
    dataset = Dataset(source_of(path), catalog.load().formats)
    findings = [(finding.code, finding.severity) for finding in validate(dataset).findings]
    assert (dataset.dialect.name, findings) == ("prompt-eval", [("table_as_source", "info"), ("needs_judge", "info")])
    assert dataset.dialect.lacks_inputs(dataset.sample) is not None
    first, second = (
        case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case)
    )
    assert first.raw["test_description"] == "-1 is an edge"
    assert (first.raw["TP1_score"], first.raw["avg_tp_score"], first.raw["result_preview"]) == (3, 2.67, '{"a": 1}')
    assert [check.name for check in first.checks] == POINTS
    assert "TP1_score" not in second.raw and second.checks == ()


def test_scores_that_a_spreadsheet_changed_are_read_and_wrong_ones_named(tmp_path: Path) -> None:
    assert read_row({"TP1_score": "3.0", "TP1_reason": "", "TP2_score": " 2 "}) == {"TP1_score": 3, "TP2_score": 2}
    path = tmp_path / "table.csv"
    path.write_text(csv_text([{**row_of(), "TP1_score": "3/3"}]), encoding="utf-8")
    assert codes(path) == ["bad_score"]


def test_a_csv_with_inputs_of_its_own_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = {"test_id": "TC001", "test_category": "i18n", "input": json.dumps({"q": "a"}), "test_description": "'=1"}
    path.write_text(csv_text([row]), encoding="utf-8")
    dataset = Dataset(source_of(path), catalog.load().formats)
    assert dataset.dialect.lacks_inputs(dataset.sample) is None
    (case,) = (case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case))
    assert (case.inputs, case.meta["description"]) == ({"q": "a"}, "'=1")


def test_scores_beside_an_input_of_its_own_are_numbers_and_outputs_texts(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    more = {"input": '{"q": "a"}', "result_aftertest": '{"a": 1}'}
    path.write_text(csv_text([{**row_of(test_id="TC001"), **more}]), encoding="utf-8")
    assert codes(path) == []
    (case,) = (case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case))
    assert (case.inputs, case.raw["TP1_score"], case.raw["result_aftertest"]) == ({"q": "a"}, 3, '{"a": 1}')


@pytest.mark.parametrize("fields", [["input_summary"], ["input_summary", "result_preview", "run_status"]])
def test_a_case_in_json_needs_its_input_whatever_else_it_has(tmp_path: Path, fields: list[str]) -> None:
    record = {name: value for name, value in CASE.items() if name not in ("input", "result_aftertest")}
    path = tmp_path / "test_cases.json"
    path.write_text(json.dumps([{**record, **dict.fromkeys(fields, "ok")}]), encoding="utf-8")
    found = [
        finding.code
        for finding in validate(Dataset(source_of(path), catalog.load().formats)).findings
        if finding.severity == "error"
    ]
    assert found == (["missing_field"] if len(fields) == 1 else ["table_as_source"])


def codes(path: Path) -> list[str]:
    return [
        finding.code
        for finding in validate(Dataset(source_of(path), catalog.load().formats)).findings
        if finding.severity != "info"
    ]


@pytest.mark.req("EVAL-7", "EVAL-8")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"total_score": "9"}, ["total_differs"]),
        ({"max_score": "12", "avg_tp_score": "2.7", "score_pct": "88%"}, ["total_differs"] * 3),
        ({"avg_tp_score": "2.670", "total_score": "8.0"}, []),
        ({"is_bad_case": "YES"}, ["total_differs"]),
        ({"is_bad_case": "no"}, ["bad_is_bad_case"]),
        ({"is_bad_case": "yes"}, ["bad_is_bad_case"]),
        ({"score_pct": "89.00%", "max_score": "9.00", "avg_tp_score": "2,67"}, []),
        ({"total_score": "TRUE"}, ["total_differs"]),
        ({"TP1_score": "1"}, ["total_differs"] * 4),
        (
            {"TP2_score": "", "TP2_reason": "", "total_score": "", "max_score": "", "avg_tp_score": ""},
            ["total_differs"],
        ),
        ({"run_status": "failed"}, ["total_differs"] * 4),
    ],
)
def test_totals_that_contradict_the_scores_of_their_row_are_named(
    tmp_path: Path, changes: dict[str, str], expected: list[str]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(csv_text([{**row_of(test_id="TC001"), **changes}]), encoding="utf-8")
    assert codes(path) == expected


def test_rows_of_failed_and_incomplete_cases_are_in_order(tmp_path: Path) -> None:
    rows = [row_of(test_id="TC001", result_aftertest=None), row_of(test_id="TC002", TP2_score=None, TP1_score=1)]
    path = tmp_path / "table.csv"
    path.write_text(csv_text([*rows, row_of(test_id="TC003", TP2_score=None, TP2_reason="")]), encoding="utf-8")
    assert codes(path) == []


@pytest.mark.req("EVAL-11", "EVAL-12")
def test_a_header_is_held_against_the_exact_order_of_columns() -> None:
    right = columns(POINTS)
    assert list(header_findings([*right, "human_TP1_score", "human_comment"], POINTS)) == []
    swapped = [*right[:8], right[9], right[8], *right[10:]]
    wrong = {
        "column_order": [swapped, ["human_TP1_score", *right], [right[-1], *right[:-1]]],
        "column_missing": [right[1:]],
        "raw_column": [["input", *right], [*right, "result_aftertest"]],
        "unknown_table_column": [[*right, "mine"], [*right, "TP9_score"]],
    }
    for code, headers in wrong.items():
        for header in headers:
            assert [(one.code, one.severity) for one in header_findings(header, POINTS)] == [(code, "error")]
    (slip,), (other,) = (list(header_findings([*right, name], POINTS)) for name in ("TP2_scor", "TP9_score"))
    assert ("Did you mean" in slip.message, "Did you mean" in other.message) == (True, False)
