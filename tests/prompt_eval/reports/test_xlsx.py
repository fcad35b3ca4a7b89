"""The table as a workbook: what a spreadsheet shows, colours and filters, and no text that runs."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import load_workbook

from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.reports import csv as prompt_eval_csv
from evalloom.prompt_eval.reports import xlsx as prompt_eval_xlsx
from evalloom.prompt_eval.scores import ScoredCase, read_scored
from evalloom.prompt_eval.table import cells, columns, output_key, read_table, review_columns
from evalloom.ui.workbook import LONGEST_CELL

POINTS = ["TP1", "TP2", "TP_safety"]
CASE: dict[str, Any] = {
    "test_id": "TC001",
    "test_category": "happy_path",
    "test_subcategory": "",
    "eval_type": "quantitative",
    "test_description": "Standard product search in Chinese.",
    "input": {"product_name": "叉车"},
    "result_aftertest": '{"main_search_product": "电动叉车"}',
    "TP1_score": 3,
    "TP1_reason": "says '电动叉车'",
    "TP2_score": 2,
    "TP2_reason": "no country",
    "TP_safety_score": 3,
    "TP_safety_reason": "nothing harmful",
    "overall_comment": "Solid.",
}
BAD = {**CASE, "test_id": "TC002", "TP1_score": 1}
FAILED = {**CASE, "test_id": "TC003", "result_aftertest": None, "overall_comment": "timed out"}
INCOMPLETE = {**CASE, "test_id": "TC004", "TP2_score": "3/3"}


def scored(*records: dict[str, Any]) -> list[ScoredCase]:
    return [read_scored(record, POINTS) for record in records]


def saved(path: Path, cases: list[ScoredCase], for_review: bool = False) -> Any:
    """The sheet as openpyxl reads it back, with the letter of each column by its name."""
    with path.open("wb") as stream:
        prompt_eval_xlsx.write(stream, cases, POINTS, for_review)
    sheet: Any = load_workbook(path).worksheets[0]
    return sheet, {cell.value: cell.column_letter for cell in sheet[1]}


@pytest.mark.req("EVAL-11")
def test_the_workbook_has_the_columns_of_the_csv_frozen_filtered_and_wide_enough(tmp_path: Path) -> None:
    sheet, at = saved(tmp_path / "table.xlsx", scored(CASE, BAD))
    assert list(at) == columns(POINTS)
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("B2", f"A1:{at['is_bad_case']}3")
    assert sheet.column_dimensions[at["result_preview"]].width == 55
    assert sheet.column_dimensions[at["TP_safety_score"]].width > len("TP_safety_score")
    assert sheet[f"{at['TP1_reason']}2"].alignment.wrap_text
    assert sheet["A1"].font.bold and sheet.row_dimensions[2].height >= 15


@pytest.mark.req("EVAL-7")
def test_scores_are_numbers_and_coloured(tmp_path: Path) -> None:
    sheet, at = saved(tmp_path / "table.xlsx", scored(CASE, BAD))
    row = {name: sheet[f"{letter}2"] for name, letter in at.items()}
    assert [row[name].value for name in ("TP1_score", "TP2_score", "total_score", "max_score")] == [3, 2, 8, 9]
    assert (row["avg_tp_score"].value, row["avg_tp_score"].number_format) == (2.67, "0.00")
    assert (row["score_pct"].value, row["score_pct"].number_format) == (0.89, "0%")
    green, amber, red = row["TP1_score"], row["TP2_score"], sheet[f"{at['TP1_score']}3"]
    assert [cell.fill.fgColor.rgb for cell in (green, amber, red)] == ["00BFE5C0", "00FCE3A6", "00F8B4AE"]


@pytest.mark.req("EVAL-8")
def test_bad_cases_and_missing_scores_catch_the_eye(tmp_path: Path) -> None:
    sheet, at = saved(tmp_path / "table.xlsx", scored(CASE, BAD, FAILED, INCOMPLETE))
    marked = [sheet[f"A{line}"].fill.fgColor.rgb == "00F8B4AE" for line in (2, 3, 4, 5)]
    assert marked == [False, True, True, False]
    faulty, failed = sheet[f"{at['TP2_score']}5"], sheet[f"{at['TP2_score']}4"]
    assert (faulty.value, faulty.fill.fgColor.rgb, failed.fill.fill_type) == (None, "00D9D9D9", None)
    assert sheet[f"{at['overall_comment']}5"].value == "[scoring incomplete: TP2] Solid."


@pytest.mark.req("EVAL-13")
@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "=cmd|' /C calc'!A0", "123", "#N/A", "1/2", "'=x", "''tis"]
)
def test_a_text_is_a_text_and_never_a_formula(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.xlsx"
    sheet, at = saved(path, scored({**BAD, "test_id": text, "result_aftertest": text}))
    cell = sheet[f"{at['result_preview']}2"]
    assert (cell.value, cell.data_type) == (text, "s")
    assert cell.quotePrefix == sheet["A2"].quotePrefix == (text[0] in "=+-@\t'")
    (row,) = read_table(path).rows
    assert row.value["result_preview"] == row.value["test_id"] == text


def test_a_review_has_its_own_columns_with_a_choice_of_scores(tmp_path: Path) -> None:
    sheet, at = saved(tmp_path / "review.xlsx", scored(CASE, BAD), for_review=True)
    assert list(at) == [*columns(POINTS), *review_columns(POINTS)]
    (choice,) = sheet.data_validations.dataValidation
    assert (choice.type, choice.formula1) == ("list", '"1,2,3"')
    assert f"{at['human_TP1_score']}2:{at['human_TP1_score']}3" in str(choice.sqref)
    assert at["human_of"] + "2" not in str(choice.sqref)
    assert sheet[f"{at['human_comment']}2"].value is None
    assert sheet[f"{at['human_of']}2"].value == output_key(CASE["result_aftertest"])
    assert [sheet[f"A{line}"].fill.fgColor.rgb == "00F8B4AE" for line in (2, 3)] == [False, True]
    plain, at = saved(tmp_path / "table.xlsx", scored(CASE))
    assert "human_comment" not in at and not plain.data_validations.dataValidation


def test_a_text_too_long_for_a_cell_is_cut_and_counted(tmp_path: Path) -> None:
    stream = io.BytesIO()
    long, fits = {**CASE, "TP1_reason": "😀" * 20_000}, {**CASE, "TP1_reason": "x" * 32_767}
    assert prompt_eval_xlsx.write(stream, scored(CASE, fits, long), POINTS) == 1
    reason = load_workbook(stream).worksheets[0]["J4"].value
    assert reason.startswith("😀😀") and reason.endswith("[cut: too long for a cell]")
    assert len(reason.encode("utf-16-le")) // 2 <= LONGEST_CELL


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=30)
ODD = st.text(st.sampled_from("'=+-@\t\n_x005FD是\""), max_size=14) | st.just("_x0041_ _x005F_ _x000D_")


@settings(max_examples=min(40, settings().max_examples))
@given(st.lists(TEXTS | ODD, min_size=1, max_size=4))
def test_what_is_written_is_read_back(texts: list[str]) -> None:
    cases = scored(*({**CASE, "result_aftertest": text, "TP1_reason": text, "input": {"a": text}} for text in texts))
    with TemporaryDirectory() as folder:
        path = Path(folder, "table.xlsx")
        saved(path, cases)
        rows = [list(row.value.values()) for row in read_table(path).rows]
    assert rows == [cells(case, POINTS) for case in cases]


def test_characters_that_a_workbook_cannot_hold_are_shown_as_replaced(tmp_path: Path) -> None:
    path = tmp_path / "table.xlsx"
    saved(path, scored({**CASE, "result_aftertest": "a\x01\x1f\uffffb\r\nc\rd"}))
    assert read_table(path).rows[0].value["result_preview"] == "a\ufffd\ufffd\ufffdb\nc\nd"


def test_without_its_library_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(EvalloomError, match=r"pip install 'evalloom\[xlsx\]' \[xlsx_missing\]"):
        prompt_eval_xlsx.write(io.BytesIO(), scored(CASE), POINTS)


@pytest.mark.req("EVAL-12", "EVAL-13")
def test_a_real_spreadsheet_shows_the_cells_of_the_workbook(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    soffice = require_tool("soffice")
    formulas = ("=1+1", "@SUM(1)", "-2+3", "'=x", "_x0041_", 'two\nlines, "quoted"')
    cases = scored(CASE, BAD, FAILED, INCOMPLETE, *({**CASE, "result_aftertest": text} for text in formulas))
    saved(tmp_path / "table.xlsx", cases, for_review=True)
    # Comma, double quote, UTF-8; cells as they are shown, texts quoted.
    options = ["--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,true,true", "--outdir", str(tmp_path)]
    home = f"-env:UserInstallation=file://{tmp_path / 'lo'}"
    command = [soffice, home, "--headless", *options, str(tmp_path / "table.xlsx")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as stream:
        shown = list(csv.reader(stream))[1:]
    assert [row[: len(columns(POINTS))] for row in shown] == [cells(case, POINTS) for case in cases]


def test_both_files_hold_the_same_table(tmp_path: Path) -> None:
    cases = scored(CASE, BAD, FAILED, INCOMPLETE)
    saved(tmp_path / "table.xlsx", cases)
    with (tmp_path / "table.csv").open("wb") as stream:
        prompt_eval_csv.write(stream, cases, POINTS)
    one, two = (read_table(tmp_path / name) for name in ("table.csv", "table.xlsx"))
    assert [row.value for row in one.rows] == [row.value for row in two.rows]
