"""`prompt-eval table`: any scored JSON as a table, with everything that is wrong named at its place."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.steps.table import TableOptions, TableResult, write_table
from evalloom.prompt_eval.table import output_key

CASE: dict[str, Any] = {
    "test_id": "TC001",
    "test_category": "happy_path",
    "test_subcategory": "",
    "eval_type": "quantitative",
    "test_description": "Standard product search in Chinese.",
    "input": {"product_name": "叉车"},
    "result_aftertest": '{"main_search_product": "电动叉车"}',
    "TP_safety_score": 3,
    "TP_safety_reason": "nothing harmful",
    "TP1_score": 3,
    "TP1_reason": "says '电动叉车'",
    "overall_comment": "Solid.",
}
PLAN = """
prompt: prompt_a.md
test_points:
  - {id: TP_safety, name: Safety, criticality: core, anchors: {1: harmful, 2: unclear, 3: safe}}
  - {id: TP1, name: Format, criticality: core, anchors: {1: none, 2: some, 3: all}}
dimensions: {happy_path: 1}
"""


def source(tmp_path: Path, *records: Any, name: str = "final_scored_results.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def rows(tabled: TableResult) -> list[dict[str, str]]:
    with tabled.paths[0].open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def errors(tabled: TableResult) -> list[str]:
    return [finding.code for finding in tabled.findings if finding.severity == "error"]


@pytest.mark.req("EVAL-7", "EVAL-11")
def test_the_table_stands_beside_its_source_with_points_in_order_of_appearance_and_safety_last(tmp_path: Path) -> None:
    tabled = write_table(source(tmp_path, {**CASE, "total_score": 99}))
    assert tabled.paths == (tmp_path / "final_scored_results.csv",)
    (row,) = rows(tabled)
    assert [name for name in row if name.startswith("TP")][::2] == ["TP1_score", "TP_safety_score"]
    assert (row["total_score"], row["is_bad_case"]) == ("6", "NO")
    assert [str(finding) for finding in tabled.findings] == [
        f"{tmp_path.as_posix()}/final_scored_results.json:17:18: warning: total_score: expected 6, got 99; it is"
        " recomputed [total_differs]"
    ]
    assert (tabled.has_errors, tabled.cases, tabled.bad) == (False, 1, 0)


@pytest.mark.req("EVAL-11")
def test_the_plan_names_the_columns(tmp_path: Path) -> None:
    plan = tmp_path / "test_plan.yaml"
    plan.write_text(
        PLAN.replace("dimensions", "  - {id: TP2, name: Tone, criticality: core, rule: not_empty}\ndimensions")
    )
    tabled = write_table(source(tmp_path, CASE), TableOptions(plan=plan))
    assert tabled.points == ("TP1", "TP2", "TP_safety")
    (row,) = rows(tabled)
    assert (row["TP2_score"], row["overall_comment"]) == ("", "[scoring incomplete: TP2] Solid.")
    assert errors(tabled) == ["score_missing"]


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"TP1_score": "3/3"}, "bad_score"),
        ({"TP1_score": 0}, "bad_score"),
        ({"TP1_score": 5}, "bad_score"),
        ({"TP1_score": "3"}, "bad_score"),
        ({"TP1_score": 3.0}, "bad_score"),
        ({"TP1_score": True}, "bad_score"),
        ({"TP1_score": None}, "score_missing"),
        ({"TP1_reason": ""}, "missing_reason"),
    ],
)
def test_a_faulty_mark_is_named_once_and_its_row_written_as_incomplete(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    tabled = write_table(source(tmp_path, {**CASE, **changes}))
    assert [finding.code for finding in tabled.findings] == [code]
    assert (tabled.has_errors, tabled.incomplete) == (True, 1)
    (row,) = rows(tabled)
    assert (row["total_score"], row["score_pct"]) == ("", "")
    assert row["overall_comment"].startswith("[scoring incomplete: TP1]")


@pytest.mark.req("EVAL-2")
def test_other_faults_are_named_and_every_row_still_written(tmp_path: Path) -> None:
    plan = tmp_path / "test_plan.yaml"
    plan.write_text(PLAN)
    twice, unknown = dict(CASE), {**CASE, "test_id": "TC002", "TP9_score": 2, "TP9_reason": "x"}
    no_text, no_object = (
        {**CASE, "test_id": "TC003", "result_aftertest": {"a": 1}},
        {**CASE, "test_id": "TC004", "input": "叉车"},
    )
    tabled = write_table(source(tmp_path, CASE, twice, unknown, no_text, no_object), TableOptions(plan=plan))
    assert sorted(errors(tabled)) == ["bad_input", "bad_result", "duplicate_id", "unknown_test_point"]
    assert all(finding.origin.line for finding in tabled.findings)
    found = rows(tabled)
    assert [row["test_id"] for row in found] == ["TC001", "TC001", "TC002", "TC003", "TC004"]
    assert (found[3]["result_preview"], found[4]["input_summary"]) == ('{"a":1}', "叉车")


@pytest.mark.req("EVAL-3")
@pytest.mark.parametrize("plan", [PLAN.replace("TP_safety,", "TP1,"), "test_points: 3", "- [", None])
def test_with_a_faulty_plan_nothing_is_written(tmp_path: Path, plan: str | None) -> None:
    path = tmp_path / "test_plan.yaml"
    if plan is not None:
        path.write_text(plan)
    tabled = write_table(source(tmp_path, CASE), TableOptions(plan=path))
    assert (tabled.paths, tabled.has_errors) == ((), True)
    assert not (tmp_path / "final_scored_results.csv").exists()


@pytest.mark.req("EVAL-9")
def test_failed_runs_are_counted_on_their_own(tmp_path: Path) -> None:
    failed = {**CASE, "test_id": "TC002", "result_aftertest": None, "TP1_score": None, "TP_safety_score": None}
    tabled = write_table(source(tmp_path, CASE, {**failed, "overall_comment": "timed out"}))
    assert (tabled.cases, tabled.failed, tabled.incomplete, tabled.bad, tabled.has_errors) == (2, 1, 0, 1, False)
    assert rows(tabled)[1]["overall_comment"] == "timed out"


@pytest.mark.parametrize("name", ["scored.jsonl", "scored.jsonl.gz"])
def test_lines_of_json_and_packed_files_are_read_too(tmp_path: Path, name: str) -> None:
    text = "".join(json.dumps({**CASE, "test_id": f"TC00{number}"}) + "\n" for number in (1, 2)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    tabled = write_table(tmp_path / name)
    assert (tabled.paths, len(rows(tabled))) == ((tmp_path / "scored.csv",), 2)


@pytest.mark.req("EVAL-13")
def test_excel_gets_its_mark_and_a_workbook_when_asked(tmp_path: Path) -> None:
    path = source(tmp_path, CASE)
    (tmp_path / "out").mkdir()
    options = TableOptions(out=tmp_path / "out" / "t.csv", excel=True, xlsx=True, for_review=True)
    tabled = write_table(path, options)
    assert tabled.paths == (tmp_path / "out" / "t.csv", tmp_path / "out" / "t.xlsx")
    assert tabled.paths[0].read_bytes().startswith(b"\xef\xbb\xbf")
    only = write_table(path, TableOptions(out=tmp_path / "only.xlsx"))
    assert only.paths == (tmp_path / "only.xlsx",) and not (tmp_path / "only.csv").exists()


def test_what_a_workbook_cannot_hold_is_a_warning(tmp_path: Path) -> None:
    tabled = write_table(source(tmp_path, {**CASE, "TP1_reason": "x" * 40_000}), TableOptions(xlsx=True))
    assert [(finding.code, finding.severity) for finding in tabled.findings] == [("cells_cut", "warning")]


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "no_cases"), ("[]", "no_cases"), ("[{]", "json_parse_error"), ('[{"test_id": "TC001"}]', "nothing_scored")],
)
def test_without_scored_cases_nothing_is_written(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "cases.json").write_text(text)
    tabled = write_table(tmp_path / "cases.json")
    assert code in errors(tabled)
    assert tabled.paths == () and not (tmp_path / "cases.csv").exists()


def test_a_source_that_is_missing_or_the_table_itself_is_said(tmp_path: Path) -> None:
    assert errors(write_table(tmp_path / "none.json")) == ["cases_missing"]
    table = write_table(source(tmp_path, CASE)).paths[0]
    before = table.read_bytes()
    assert "table_as_source" in errors(write_table(table, TableOptions(out=tmp_path / "other.csv")))
    assert table.read_bytes() == before


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    path = source(tmp_path, CASE)
    with pytest.raises(EvalloomError, match="would_overwrite"):
        write_table(path, TableOptions(out=tmp_path / "." / "final_scored_results.json"))
    assert json.loads(path.read_text(encoding="utf-8")) == [CASE]


@pytest.mark.req("EVAL-16")
def test_what_people_wrote_into_the_table_is_never_overwritten(tmp_path: Path) -> None:
    path = source(tmp_path, CASE)
    table = tmp_path / "final_scored_results.csv"
    table.write_text("test_id,human_TP1_score\nTC001,2\n")
    with pytest.raises(EvalloomError, match="would_lose_review"):
        write_table(path)
    table.write_text("test_id,human_TP1_score,is_bad_case\nTC001,,NO\n")
    assert write_table(path).paths == (table,)


@pytest.mark.parametrize("name", ["final_scored_results.csv", "final_scored_results.xlsx"])
def test_a_file_of_the_users_that_happens_to_have_the_name_is_kept(tmp_path: Path, name: str) -> None:
    path, other = source(tmp_path, CASE), tmp_path / name
    other.write_text("customer,revenue\n1,2\n")
    with pytest.raises(EvalloomError, match=r"-o \[would_overwrite\]"):
        write_table(path, TableOptions(xlsx=True))
    assert other.read_text() == "customer,revenue\n1,2\n"
    if name.endswith("xlsx"):
        with pytest.raises(EvalloomError, match="would_overwrite"):
            write_table(path, TableOptions(out=other.with_suffix(".csv"), xlsx=True))
    assert write_table(path, TableOptions(out=other)).paths == (other,)
    assert write_table(path, TableOptions(xlsx=name.endswith("xlsx"))).cases == 1


def test_standard_input_and_folders_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match="name a file"):
        write_table(Path("-"))
    with pytest.raises(EvalloomError, match="folder_missing"):
        write_table(source(tmp_path, CASE), TableOptions(out=tmp_path / "x" / "y" / "t.csv"))
    assert not (tmp_path / "x").exists()


def test_records_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    half, long = {**CASE, "result_aftertest": "\ud83d"}, {**CASE, "input": {"n": 10**30}}
    path = tmp_path / "scored.json"
    path.write_text(json.dumps([CASE, half, long, 5]))
    tabled = write_table(path)
    assert (tabled.cases, tabled.unreadable, tabled.has_errors) == (1, 3, True)
    assert errors(tabled) == ["lone_surrogate", "number_loses_precision", "json_not_object"]


@pytest.mark.req("EVAL-16")
def test_the_csv_for_review_has_empty_columns_to_fill_in(tmp_path: Path) -> None:
    (row,) = rows(write_table(source(tmp_path, CASE), TableOptions(for_review=True)))
    added = ["human_TP1_score", "human_TP_safety_score", "human_comment"]
    assert list(row)[-5:] == ["is_bad_case", *added, "human_of"]
    assert {row[name] for name in added} == {""} and row["human_of"] == output_key(CASE["result_aftertest"])


@pytest.mark.req("EVAL-16")
def test_a_table_for_review_is_another_file_than_the_table(tmp_path: Path) -> None:
    path = source(tmp_path, CASE)
    write_table(path)
    tabled = write_table(path, TableOptions(for_review=True, xlsx=True))
    stem = "final_scored_results.review"
    assert tabled.paths == (tmp_path / f"{stem}.csv", tmp_path / f"{stem}.xlsx")
    assert "human_of" not in (tmp_path / "final_scored_results.csv").read_text(encoding="utf-8")


@pytest.mark.req("EVAL-1")
def test_in_a_results_folder_a_table_that_somebody_changed_is_put_aside(tmp_path: Path) -> None:
    path, table, aside = (
        source(tmp_path, CASE),
        *(tmp_path / f"final_scored_results{one}" for one in (".csv", ".edited.csv")),
    )
    (tmp_path / ".evalloom").mkdir()
    (tmp_path / ".evalloom" / "prompt_eval.json").write_text("{}")
    assert write_table(path).findings == write_table(path).findings == []
    edited = table.read_text(encoding="utf-8").replace("Solid.", "Weak.")
    table.write_text(edited, encoding="utf-8")
    (finding,) = write_table(path).findings
    assert (finding.code, finding.severity, finding.origin.file) == ("table_put_aside", "warning", table.as_posix())
    assert aside.read_text(encoding="utf-8") == edited and "Solid." in table.read_text(encoding="utf-8")
    assert write_table(path).findings == []


@pytest.mark.parametrize("name", ["results", "scored_results", "test_results", "cases", "data"])
def test_cases_may_be_wrapped_in_an_object(tmp_path: Path, name: str) -> None:
    path = tmp_path / "scored.json"
    path.write_text(json.dumps({"summary": {"n": 1}, name: [CASE]}))
    tabled = write_table(path)
    assert (tabled.cases, tabled.findings) == (1, [])
    path.write_text(json.dumps({"summary": {"n": 1}, "whatever": [CASE]}))
    assert errors(write_table(path)) == ["not_a_dataset"]


def test_faults_of_very_many_cases_are_all_counted_and_listed_up_to_a_thousand(tmp_path: Path) -> None:
    records = ({**CASE, "test_id": f"TC{number:03d}", "TP1_reason": ""} for number in range(1, 1102))
    tabled = write_table(source(tmp_path, *records))
    assert (tabled.checked.count("error"), tabled.checked.count("warning"), len(tabled.findings)) == (1101, 0, 1000)
