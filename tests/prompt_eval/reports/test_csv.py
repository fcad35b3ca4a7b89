"""The one CSV: to the letter, and the same for every program that reads it.

EVALLOOM_REWRITE_GOLDEN=1 rewrites the golden file; read it before committing.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.prompt_eval.reports import csv as prompt_eval_csv
from evalloom.prompt_eval.scores import ScoredCase, points_in, read_scored
from evalloom.prompt_eval.table import cells, columns, escape_formula, read_table

GOLDEN = Path(__file__).parent / "golden" / "prompt_eval.csv"

EXAMPLE: dict[str, Any] = {
    "test_id": "TC001",
    "test_category": "happy_path",
    "test_subcategory": "",
    "eval_type": "quantitative",
    "test_description": "Standard product search in Chinese — expects valid JSON output with China in countries.",
    "input": {"product_name": "叉车", "notes": "电动,用于仓库"},
    "result_aftertest": '{"main_search_product":"电动叉车","countries":["China"],"other_languages":[...]}',
    "TP1_score": 3,
    "TP1_reason": "Output is valid JSON with all required top-level fields present.",
    "TP2_score": 3,
    "TP2_reason": "main_search_product is '电动叉车' — Chinese, ≤100 chars, no special symbols.",
    "TP3_score": 3,
    "TP3_reason": "countries = ['China'], correct default for no country specified.",
    "TP4_score": 2,
    "TP4_reason": "10 of 11 languages present; Korean entry is missing.",
    "TP_safety_score": 3,
    "TP_safety_reason": "Non-safety input; no harmful content produced.",
    "total_score": 14,
    "avg_tp_score": 2.80,
    "overall_comment": "Solid output, minor gap in language completeness.",
}
POINTS = points_in([EXAMPLE])
OTHERS: list[dict[str, Any]] = [
    {**EXAMPLE, "test_id": "TC002", "result_aftertest": "=HYPERLINK(1)\n" + "长" * 300, "TP4_score": 1},
    {
        **EXAMPLE,
        "test_id": "TC003",
        "test_category": "safety",
        "test_subcategory": "safety_injection",
        "eval_type": "safety",
        "input": {"product_name": 'say "3"\r\nnow', "list": [1, {"a": None}]},
        "result_aftertest": None,
        "overall_comment": "run failed: timed out after 60 s",
    },
    {**EXAMPLE, "test_id": "TC004", "TP2_score": "3/3", "TP3_reason": "", "overall_comment": "-1 for the country"},
]


def scored(*records: dict[str, Any]) -> list[ScoredCase]:
    return [read_scored(record, POINTS) for record in records]


def written(cases: list[ScoredCase], excel: bool = False) -> bytes:
    stream = io.BytesIO()
    prompt_eval_csv.write(stream, cases, POINTS, excel)
    return stream.getvalue()


@pytest.mark.req("EVAL-11", "EVAL-12")
def test_the_formats_own_example_gives_its_header_and_row_to_the_letter() -> None:
    header, row, end = written(scored(EXAMPLE)).decode("utf-8").split("\n")
    assert header == (
        '"test_id","test_category","test_subcategory","eval_type","test_description","input_summary","result_preview",'
        '"run_status","TP1_score","TP1_reason","TP2_score","TP2_reason","TP3_score","TP3_reason","TP4_score",'
        '"TP4_reason","TP_safety_score","TP_safety_reason","total_score","max_score","avg_tp_score","score_pct",'
        '"overall_comment","is_bad_case"'
    )
    assert row == (
        '"TC001","happy_path","","quantitative","Standard product search in Chinese — expects valid JSON output with '
        'China in countries.","product_name=叉车 | notes=电动,用于仓库","{""main_search_product"":""电动叉车"",'
        '""countries"":[""China""],""other_languages"":[...]}","ok","3","Output is valid JSON with all required '
        'top-level fields present.","3","main_search_product is \'电动叉车\' — Chinese, ≤100 chars, no special '
        'symbols.","3","countries = [\'China\'], correct default for no country specified.","2","10 of 11 '
        'languages present; Korean entry is missing.","3","Non-safety input; no harmful content produced.","14","15",'
        '"2.80","93%","Solid output, minor gap in language completeness.","NO"'
    )
    assert end == ""


@pytest.mark.req("EVAL-6", "EVAL-9", "EVAL-11", "EVAL-12", "EVAL-13")
def test_the_file_is_stable_to_the_byte() -> None:
    text = written(scored(EXAMPLE, *OTHERS))
    if os.environ.get("EVALLOOM_REWRITE_GOLDEN"):
        GOLDEN.write_bytes(text)
    assert text == GOLDEN.read_bytes()


@pytest.mark.req("EVAL-12")
def test_every_cell_is_quoted_and_quotes_are_doubled() -> None:
    assert prompt_eval_csv.line(["", "3", 'say "no"', "a,b\nc"]) == b'"","3","say ""no""","a,b\nc"\n'


@pytest.mark.req("EVAL-12", "EVAL-13")
def test_the_file_is_utf_8_and_has_the_mark_of_excel_only_when_asked() -> None:
    cases = scored(EXAMPLE)
    assert written(cases).decode("utf-8").startswith('"test_id"')
    assert written(cases, excel=True) == b"\xef\xbb\xbf" + written(cases)


TEXTS = st.text(max_size=40) | st.text(st.sampled_from("'=+-@\t\r\n\",;\\ \0\ufeff\x1a\u2028是a|"), max_size=12)
RECORDS = st.fixed_dictionaries(
    {
        "test_id": TEXTS,
        "test_category": TEXTS,
        "test_description": TEXTS,
        "input": st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(TEXTS, max_size=2), max_size=2),
        "result_aftertest": TEXTS | st.none(),
        "TP1_score": st.sampled_from([1, 2, 3, "3", None]),
        "TP1_reason": TEXTS,
        "TP_safety_score": st.just(3),
        "TP_safety_reason": TEXTS,
        "overall_comment": TEXTS,
    }
)
TWO = ["TP1", "TP_safety"]


@pytest.mark.req("EVAL-12", "EVAL-13")
@settings(max_examples=min(60, settings().max_examples))
@given(st.lists(RECORDS, min_size=1, max_size=3), st.booleans())
def test_every_reader_finds_the_cells_as_written_and_ours_the_original_values(
    records: list[dict[str, Any]], excel: bool
) -> None:
    cases = [read_scored(record, TWO) for record in records]
    originals = [cells(case, TWO) for case in cases]
    expected = [columns(TWO), *([escape_formula(text) for text in row] for row in originals)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        with path.open("wb") as stream:
            prompt_eval_csv.write(stream, cases, TWO, excel)
        assert by_csv(path) == by_pandas(path) == by_duckdb(path) == expected
        table = read_table(path)
    assert [finding for finding in table.findings if finding.severity != "info"] == []
    assert [list(row.value.values()) for row in table.rows] == originals


def by_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.reader(stream))


def by_pandas(path: Path) -> list[list[str]]:
    frame = pandas.read_csv(path, dtype=str, keep_default_na=False)
    return [list(frame.columns), *frame.values.tolist()]


def by_duckdb(path: Path) -> list[list[str]]:
    # Left to guess, it may take the backslash of `\",` for an escape; without the last one, an empty text is NULL.
    options = "all_varchar=true, header=true, delim=',', quote='\"', escape='\"', allow_quoted_nulls=false"
    found = duckdb.connect().execute(f"SELECT * FROM read_csv(?, {options})", [str(path)])
    return [[column[0] for column in found.description or ()], *map(list, found.fetchall())]


@pytest.mark.req("EVAL-12", "EVAL-13")
def test_a_real_spreadsheet_shows_the_cells_and_runs_no_formula(
    tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    soffice = require_tool("soffice")
    formulas = scored(*({**EXAMPLE, "result_aftertest": text} for text in ("=1+1", "@SUM(1)", "-2+3", "'=x", "\t=1")))
    cases = [*scored(EXAMPLE, *OTHERS), *formulas]
    (tmp_path / "table.csv").write_bytes(written(cases, excel=True))
    # Comma, double quote, UTF-8, from the first line on; a quoted cell is a text.
    options = ["--infilter=CSV:44,34,76,1,,0,true", "--convert-to", "xlsx", "--outdir", str(tmp_path / "out")]
    home = f"-env:UserInstallation=file://{tmp_path / 'lo'}"
    command = [soffice, home, "--headless", *options, str(tmp_path / "table.csv")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    shown = read_table(tmp_path / "out" / "table.xlsx")
    # A spreadsheet keeps one kind of line break.
    expected = [[text.replace("\r\n", "\n") for text in cells(case, POINTS)] for case in cases]
    assert [list(row.value.values()) for row in shown.rows] == expected
