"""`prompt-eval import-review`: people's scores out of a table that they saved, and nothing that they did not say."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.worksheet.formula import ArrayFormula

from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.scores import output_digest, read_scored
from evalloom.prompt_eval.steps.review import Review, current_scores, import_review, read_reviews
from evalloom.prompt_eval.steps.table import TableOptions, write_table
from evalloom.prompt_eval.table import has_review

pytestmark = pytest.mark.req("EVAL-16")
RESULT = "电动叉车"
OF_RESULT = output_digest(RESULT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A results folder with two scored cases."""
    found = tmp_path / "results"
    found.mkdir()
    case: dict[str, Any] = {
        "test_category": "happy_path",
        "test_subcategory": "",
        "eval_type": "quantitative",
        "test_description": "Standard product search.",
        "input": {"product_name": "叉车"},
        "result_aftertest": RESULT,
        **{f"TP{number}_score": 3 for number in (1, 2)},
        **{f"TP{number}_reason": "says '电动叉车'" for number in (1, 2)},
        "overall_comment": "Solid.",
    }
    records = [{"test_id": test_id, **case} for test_id in ("TC001", "TC002")]
    (found / "final_scored_results.json").write_text(json.dumps(records), encoding="utf-8")
    return found


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "reviewed.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_scores_and_comments_are_taken_over_and_blanks_left_out(tmp_path: Path, folder: Path) -> None:
    text = "test_id;human_TP1_score;human_TP2_score;human_comment\nTC002;3.0;;'=不对\nTC001;;;\n"
    reviewed = import_review(table(tmp_path, text), folder)
    assert reviewed.findings == []
    assert json.loads((folder / "human_scores.json").read_text(encoding="utf-8")) == {
        "TC002": {"scores": {"TP1": 3}, "comment": "=不对", "result": OF_RESULT}
    }
    assert (reviewed.cases, reviewed.scores, reviewed.added, reviewed.replaced) == (1, 1, 1, 0)


def test_a_later_review_adds_to_the_former_one_and_says_what_it_replaced(tmp_path: Path, folder: Path) -> None:
    import_review(table(tmp_path, "test_id,human_TP1_score,human_comment\nTC001,1,weak\n"), folder)
    second = table(tmp_path, "test_id,human_TP1_score,human_TP2_score\nTC001,2,3\nTC002,,1\n")
    reviewed = import_review(second, folder)
    assert (reviewed.added, reviewed.replaced, reviewed.dropped) == (2, 1, 0)
    assert read_reviews(folder) == {
        "TC001": Review({"TP1": 2, "TP2": 3}, "weak", OF_RESULT),
        "TC002": Review({"TP2": 1}, "", OF_RESULT),
    }
    assert (import_review(second, folder).added, import_review(second, folder).replaced) == (0, 0)


def test_the_workbook_for_review_comes_back_filled_in(tmp_path: Path, folder: Path) -> None:
    out = tmp_path / "review.xlsx"
    write_table(folder / "final_scored_results.json", TableOptions(out=out, for_review=True))
    workbook = load_workbook(out)
    sheet: Any = workbook.worksheets[0]
    at = {cell.value: cell.column_letter for cell in sheet[1]}
    sheet[f"{at['human_TP1_score']}3"], sheet[f"{at['human_comment']}3"] = 2, "zu kurz"
    workbook.save(out)
    assert import_review(out, folder).findings == []
    assert read_reviews(folder) == {"TC002": Review({"TP1": 2}, "zu kurz", OF_RESULT)}


def test_the_csv_comes_back_with_columns_added(tmp_path: Path, folder: Path) -> None:
    lines = write_table(folder / "final_scored_results.json").paths[0].read_text(encoding="utf-8").splitlines()
    added = [lines[0] + ",human_TP2_score", lines[1] + ",1", lines[2] + ","]
    assert import_review(table(tmp_path, "\r\n".join(added)), folder).scores == 1
    assert read_reviews(folder) == {"TC001": Review({"TP2": 1}, "", OF_RESULT)}


@pytest.mark.parametrize("cell", ["3/3", "0", "4", "good", "2.5", "-1", "３", "TRUE"])
def test_what_is_no_score_is_named_by_row_and_column_and_nothing_written(
    tmp_path: Path, folder: Path, cell: str
) -> None:
    path = table(tmp_path, f"test_id,human_TP1_score\nTC001,2\nTC002,{cell}\n")
    reviewed = import_review(path, folder)
    assert [str(finding) for finding in reviewed.findings] == [
        f"{path.as_posix()}:3:7: human_TP1_score: expected 1, 2, 3 or an empty cell, got {cell!r} [bad_human_score]"
    ]
    assert not reviewed.is_written and not (folder / "human_scores.json").exists()


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("test_id,human_TP1_score\nTC009,2\n", ["unknown_test_id"]),
        ("test_id,human_TP1_score\n,2\n", ["unknown_test_id"]),
        ("test_id,human_TP1_score\nTC001,2\nTC001,2\n", ["duplicate_id"]),
        ("test_id,human_TP9_score\nTC001,2\n", ["unknown_human_column"]),
        ("test_id,Human_TP1_score\nTC001,2\n", ["unknown_human_column"]),
        ("test_id,TP1_score\nTC001,2\n", ["no_human_columns"]),
        ("id,human_TP1_score\nTC001,2\n", ["not_a_table"]),
        ("test_id,human_TP1_score\nTC001,7\nTC003,2\n", ["bad_human_score", "unknown_test_id"]),
        ("test_id,human_TP1_score,human_comment\nTC001,, \n", ["no_human_scores"]),
        ("test_id,human_TP1_score,human_TP1_score\nTC001,1,3\n", ["duplicate_key"]),
        ("test_id,result_preview,human_TP1_score\nTC001,手动叉车,3\n", ["review_of_other_output"]),
        ("test_id,result_preview,human_comment\nTC001,[NULL],why?\n", ["review_of_other_output"]),
    ],
)
def test_every_fault_is_listed_and_nothing_written(tmp_path: Path, folder: Path, text: str, codes: list[str]) -> None:
    reviewed = import_review(table(tmp_path, text), folder)
    assert [finding.code for finding in reviewed.findings] == codes
    assert not reviewed.is_written and not (folder / "human_scores.json").exists()


def test_a_workbook_points_at_row_and_column_and_may_have_other_sheets(tmp_path: Path, folder: Path) -> None:
    workbook = Workbook()
    workbook.worksheets[0].append(["notes"])
    sheet = workbook.create_sheet("review")
    for row in (["test_id", "mine", "human_TP1_score"], ["TC001", None, 3], ["TC002", None, "gut"]):
        sheet.append(row)
    path = tmp_path / "mine.xlsx"
    workbook.save(path)
    (finding,) = import_review(path, folder).findings
    assert (finding.code, finding.origin.line, finding.origin.column) == ("bad_human_score", 3, 3)


def test_without_scored_cases_or_with_a_broken_file_before_it_says_what_to_do(tmp_path: Path, folder: Path) -> None:
    path = table(tmp_path, "test_id,human_TP1_score\nTC001,2\n")
    with pytest.raises(EvalloomError, match="nothing_to_review"):
        import_review(path, tmp_path)
    for text in ("{", '{"TC001": {"scores": {"TP1": 4}}}', '{"TC001": {"score": 1}}'):
        (folder / "human_scores.json").write_text(text)
        with pytest.raises(EvalloomError, match="bad_human_scores"):
            import_review(path, folder)
        assert (folder / "human_scores.json").read_text() == text


def run_again(folder: Path, result: str | None) -> list[Any]:
    """Gives the first case another output; the cases as they are now."""
    path = folder / "final_scored_results.json"
    records = json.loads(path.read_text(encoding="utf-8"))
    records[0]["result_aftertest"] = result
    path.write_text(json.dumps(records), encoding="utf-8")
    return [read_scored(record, ["TP1", "TP2"]) for record in records]


def test_scores_are_about_an_output_and_no_longer_count_when_there_is_another(tmp_path: Path, folder: Path) -> None:
    import_review(table(tmp_path, "test_id,human_TP1_score\nTC001,1\nTC002,2\n"), folder)
    by_hand = {**json.loads((folder / "human_scores.json").read_text()), "TC009": {"scores": {"TP1": 3}}}
    (folder / "human_scores.json").write_text(json.dumps(by_hand))
    cases = run_again(folder, "又一个")
    assert current_scores(read_reviews(folder), cases) == ({"TC002": {"TP1": 2}}, ["TC001", "TC009"])
    (folder / "human_scores.json").write_text('{"TC001": {"scores": {"TP1": 3}}, "TC002": {"comment": "-"}}')
    assert current_scores(read_reviews(folder), cases) == ({"TC001": {"TP1": 3}}, [])


def test_a_new_review_drops_what_was_said_of_another_output(tmp_path: Path, folder: Path) -> None:
    import_review(table(tmp_path, "test_id,human_TP1_score,human_comment\nTC001,1,weak\nTC002,2,\n"), folder)
    run_again(folder, "又一个")
    reviewed = import_review(table(tmp_path, "test_id,human_TP2_score\nTC001,3\n"), folder)
    assert (reviewed.added, reviewed.replaced, reviewed.dropped) == (1, 0, 1)
    assert read_reviews(folder)["TC001"] == Review({"TP2": 3}, "", output_digest("又一个"))
    assert read_reviews(folder)["TC002"].scores == {"TP1": 2}


def test_a_failed_run_has_nothing_to_score(tmp_path: Path, folder: Path) -> None:
    run_again(folder, None)
    (finding,) = import_review(table(tmp_path, "test_id,human_TP1_score\nTC001,1\n"), folder).findings
    assert (finding.code, finding.severity, finding.case_id) == ("score_without_result", "error", "TC001")
    assert import_review(table(tmp_path, "test_id,human_comment\nTC001,why?\n"), folder).is_written


@pytest.mark.parametrize("result", ["'=1+1", "=1", "  a\r\nb ", "x" * 400, "a\x01\ufffdb", '{"a": 1}', "-"])
def test_an_output_is_known_again_in_both_kinds_of_table(tmp_path: Path, folder: Path, result: str) -> None:
    run_again(folder, result)
    for name in ("review.csv", "review.xlsx"):
        out = tmp_path / name
        write_table(folder / "final_scored_results.json", TableOptions(out=out, for_review=True))
        assert [finding.code for finding in import_review(out, folder).findings] == ["no_human_scores"]
        if name.endswith("csv"):
            fill_in(out, human_comment="seen", human_of="")
        else:
            workbook = load_workbook(out)
            sheet: Any = workbook.worksheets[0]
            sheet.cell(2, sheet.max_column - 1).value = "seen"
            sheet.cell(2, sheet.max_column).value = None
            workbook.save(out)
        assert import_review(out, folder).findings == []


def for_review(folder: Path) -> Path:
    """A new table for review."""
    return write_table(folder / "final_scored_results.json", TableOptions(for_review=True)).paths[0]


def fill_in(path: Path, **texts: str) -> Path:
    """Writes into the first row of a table."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows([{**rows[0], **texts}, *rows[1:]])
    return path


def test_a_change_after_the_preview_is_noticed_too(tmp_path: Path, folder: Path) -> None:
    run_again(folder, "长" * 400)
    path = fill_in(for_review(folder), human_TP1_score="2")
    assert import_review(path, folder).is_written
    run_again(folder, "长" * 399 + "短")
    (finding,) = import_review(path, folder).findings
    assert (finding.code, finding.field, finding.case_id) == ("review_of_other_output", "human_of", "TC001")
    assert "TC001" not in finding.message and finding.message.endswith("Review a new table, or remove such rows")


def test_where_the_digest_says_so_it_is_the_same_output_however_the_preview_looks(tmp_path: Path, folder: Path) -> None:
    path = fill_in(for_review(folder), human_TP1_score="2", result_preview="shown otherwise by a spreadsheet")
    assert import_review(path, folder).findings == []
    assert read_reviews(folder) == {"TC001": Review({"TP1": 2}, "", OF_RESULT)}
    fill_in(path, human_of=" ")
    assert [finding.code for finding in import_review(path, folder).findings] == ["review_of_other_output"]


@pytest.mark.parametrize(
    ("result", "saved"),
    [
        ("true", "TRUE"),
        ("42.0", "42"),
        ("007", "7"),
        ("3/4", "04. Mrz"),
        ("1e5", "100000"),
        ("10:30", "10:30:00"),
        ("50%", "0.5"),
        ("2024-05-01", "01.05.24"),
        ("May 5", "05. Mai"),
        ("$5", "$5.00"),
        ("12345678901234567890123", "1.23E+22"),
    ],
)
def test_a_value_that_a_spreadsheet_writes_anew_is_no_other_output(
    tmp_path: Path, folder: Path, result: str, saved: str
) -> None:
    run_again(folder, result)
    text = f"test_id,result_preview,human_TP1_score\nTC001,{saved},2\n"
    assert import_review(table(tmp_path, text), folder).findings == []


# -- workbooks ----------------------------------------------------------------------------------------


def workbook_of(path: Path, *sheets: list[list[Any]]) -> Path:
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    for number, rows in enumerate(sheets, 1):
        sheet = workbook.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    workbook.save(path)
    return path


def test_a_formula_that_nobody_computed_is_no_score_and_no_empty_cell(tmp_path: Path, folder: Path) -> None:
    path = workbook_of(tmp_path / "mine.xlsx", [["test_id", "human_TP1_score"], ["TC001", "=1+1"], ["TC002", 3]])
    (finding,) = import_review(path, folder).findings
    assert (finding.code, finding.origin.line) == ("bad_human_score", 2)
    array: Any = ArrayFormula("B2", "=SUM(1+1)")
    workbook_of(path, [["test_id", "human_TP1_score"], ["TC001", array], ["TC002", 3]])
    (finding,) = import_review(path, folder).findings
    assert finding.message.endswith("got a formula without a value; save the file in a spreadsheet program")
    assert has_review(path)


def test_a_score_is_what_the_cell_holds_and_not_what_it_shows(tmp_path: Path, folder: Path) -> None:
    path = workbook_of(tmp_path / "mine.xlsx", [["test_id", "human_TP1_score"], ["TC001", 2.999], ["TC002", 3]])
    workbook = load_workbook(path)
    for line in (2, 3):
        workbook.worksheets[0].cell(line, 2).number_format = "0.00"
    workbook.save(path)
    (finding,) = import_review(path, folder).findings
    assert (finding.code, finding.origin.line) == ("bad_human_score", 2)


def test_reviews_in_two_sheets_are_refused_and_one_in_any_sheet_is_found(tmp_path: Path, folder: Path) -> None:
    head: list[Any] = ["test_id", "human_TP1_score"]
    empty, filled = [head, ["TC001", None]], [head, ["TC001", 2]]
    both = workbook_of(tmp_path / "both.xlsx", filled, filled)
    (finding,) = import_review(both, folder).findings
    assert (finding.code, finding.severity) == ("several_reviews", "error")
    assert "'sheet 1', 'sheet 2'" in finding.message and has_review(both)
    second = workbook_of(tmp_path / "second.xlsx", empty, filled)
    assert import_review(second, folder).scores == 1 and has_review(second)
    assert not has_review(workbook_of(tmp_path / "empty.xlsx", empty, empty))
