"""`prompt-eval import-review`: people's scores out of a table that they saved, and nothing that they did not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook

from evalloom.errors import EvalloomError
from evalloom.workbench.prompt_eval_review import Review, import_review, read_reviews
from evalloom.workbench.prompt_eval_table import TableOptions, write_table

pytestmark = pytest.mark.req("EVAL-16")


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
        "result_aftertest": "电动叉车",
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
        "TC002": {"scores": {"TP1": 3}, "comment": "=不对"}
    }
    assert (reviewed.cases, reviewed.scores, reviewed.added, reviewed.replaced) == (1, 1, 1, 0)


def test_a_later_review_adds_to_the_former_one_and_says_what_it_replaced(tmp_path: Path, folder: Path) -> None:
    import_review(table(tmp_path, "test_id,human_TP1_score,human_comment\nTC001,1,weak\n"), folder)
    second = table(tmp_path, "test_id,human_TP1_score,human_TP2_score\nTC001,2,3\nTC002,,1\n")
    reviewed = import_review(second, folder)
    assert (reviewed.added, reviewed.replaced) == (1, 1)
    assert read_reviews(folder) == {
        "TC001": Review({"TP1": 2, "TP2": 3}, "weak"),
        "TC002": Review({"TP2": 1}),
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
    assert read_reviews(folder) == {"TC002": Review({"TP1": 2}, "zu kurz")}


def test_the_csv_comes_back_with_columns_added(tmp_path: Path, folder: Path) -> None:
    lines = write_table(folder / "final_scored_results.json").paths[0].read_text(encoding="utf-8").splitlines()
    added = [lines[0] + ",human_TP2_score", lines[1] + ",1", lines[2] + ","]
    assert import_review(table(tmp_path, "\r\n".join(added)), folder).scores == 1
    assert read_reviews(folder) == {"TC001": Review({"TP2": 1})}


@pytest.mark.parametrize("cell", ["3/3", "0", "4", "good", "2.5", "-1", "３", "TRUE"])
def test_what_is_no_score_is_named_by_row_and_column_and_nothing_written(
    tmp_path: Path, folder: Path, cell: str
) -> None:
    path = table(tmp_path, f"test_id,human_TP1_score\nTC001,2\nTC002,{cell}\n")
    reviewed = import_review(path, folder)
    assert [str(finding) for finding in reviewed.findings] == [
        f"{path.as_posix()}:3:7: human_TP1_score: expected 1, 2 or 3, or nothing where nobody has looked, got {cell!r}"
        " [bad_human_score]"
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
