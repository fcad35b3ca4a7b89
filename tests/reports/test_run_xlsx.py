"""The workbook of a batch: typed cells, filters, no text that runs, and a size that does not matter."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Mismatch, Origin, Output, Run, Scored, Usage, Verdict
from evalloom.reports import RUN_REPORTERS, by_suffix, run_xlsx
from evalloom.reports.run_report import ReportRow, RunReport
from evalloom.ui.report_marks import is_report

pytestmark = pytest.mark.req("WORK-14")


def run(number: int, text: str = "no", score: float = 0.25) -> ReportRow:
    verdict = Verdict("says it", "equals", "output", "failed", score, text, [Mismatch("", 1, text)])
    usage = Usage(10, 5, 0.5, 1)
    one = Run(f"k{number}", text, "p", output=Output(text), duration_s=1.5, usage=usage, origin=Origin("c.jsonl", 3))
    return one, Scored(f"k{number}", "failed", score, [verdict])


def saved(path: Path, rows: Any, **more: Any) -> Any:
    with path.open("wb") as stream:
        run_xlsx.render(RunReport({"id": "b1"}, {}, [], rows, **more), stream)
    return load_workbook(path)


def test_the_sheets_have_typed_cells_filters_and_a_frozen_header(tmp_path: Path) -> None:
    book = saved(tmp_path / "a.xlsx", [run(1), run(2)])
    assert book.sheetnames == ["Summary", "Runs", "Checks", "Failures by cause"]
    for name in book.sheetnames[1:]:
        assert book[name].freeze_panes == "B2" and book[name].auto_filter.ref.startswith("A1:")
    assert (book["Runs"].auto_filter.ref, book["Runs"].column_dimensions["G"].width) == ("A1:O3", 40)
    row = {head.value: cell.value for head, cell in zip(book["Runs"][1], book["Runs"][2], strict=True)}
    assert (row["Status"], row["Score"], row["Seconds"], row["Tokens"], row["Cost"]) == ("Failed", 0.25, 1.5, 15, 0.5)
    assert [cell.value for cell in book["Checks"][2]][3:8] == ["says it", "equals", "output", "Failed", 0.25]
    assert [cell.value for cell in book["Failures by cause"][2]][:4] == [2, None, "says it", "no"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0"])
def test_a_text_is_never_a_formula(tmp_path: Path, text: str) -> None:
    book = saved(tmp_path / "a.xlsx", [run(1, text)], language="zh")
    cells = [cell for sheet in book.worksheets for row in sheet for cell in row if cell.value is not None]
    shown = [cell for cell in cells if cell.value == text]
    assert len(shown) >= 5 and all(cell.quotePrefix for cell in shown)
    assert {cell.data_type for cell in cells} <= {"s", "n"}


def test_a_long_text_is_cut_and_the_summary_says_so(tmp_path: Path) -> None:
    book = saved(tmp_path / "a.xlsx", [run(1, "𠀀" * 20_000)])
    output = book["Runs"]["G2"].value
    assert len(output.encode("utf-16-le")) // 2 <= 32_767 and output.endswith("… [cut: too long for a cell]")
    notes = [row[0].value for row in book["Summary"] if "too long" in str(row[0].value)]
    assert [note.split(":")[0] for note in notes] == ["Runs", "Checks", "Failures by cause"]


def test_a_number_that_a_workbook_cannot_hold_is_text(tmp_path: Path) -> None:
    book = saved(tmp_path / "a.xlsx", [run(1, score=float("nan")), run(2, score=float("inf"))])
    assert [book["Runs"][f"E{row}"].value for row in (2, 3)] == ["nan", "inf"]


def test_memory_does_not_grow_with_the_runs(tmp_path: Path) -> None:
    class Rows:
        def __init__(self, number: int) -> None:
            self.number = number

        def __iter__(self) -> Iterator[ReportRow]:
            return (run(number, f"{number:04}" * 500) for number in range(self.number))

    def peak(number: int) -> int:
        tracemalloc.start()
        with (tmp_path / "a.xlsx").open("wb") as stream:
            run_xlsx.render(RunReport({}, {}, [], Rows(number)), stream)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)
    # 400 more runs have 400 times 2,000 characters in seven cells: 5.6 MB.
    assert peak(500) - peak(100) < 2_000_000


def test_without_its_library_the_message_comes_before_anything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter: Any = by_suffix(Path("a.xlsx"), RUN_REPORTERS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(EvalloomError, match=r"pip install 'evalloom\[xlsx\]' \[xlsx_missing\]"):
        reporter.load()


def test_our_workbook_is_replaced_and_one_that_was_edited_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = saved(path, [run(1)])
    assert is_report(path)
    book.properties.lastModifiedBy = "Ann"
    book.save(path)
    assert not is_report(path)
    path.write_bytes(b"PK\x03\x04 not a zip")
    assert not is_report(path)


def test_a_real_spreadsheet_opens_it(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    soffice = require_tool("soffice")
    texts = ["=1+1", "@SUM(1)", "-2+3", "_x0041_", 'two\nlines, "quoted"', "案例"]
    saved(tmp_path / "a.xlsx", [run(number, text) for number, text in enumerate(texts)])
    # The second sheet as comma-separated UTF-8.
    options = ["--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,true,true,false,false,false,2"]
    home = f"-env:UserInstallation=file://{tmp_path / 'lo'}"
    command = [soffice, home, "--headless", *options, "--outdir", str(tmp_path), str(tmp_path / "a.xlsx")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    shown = list(csv.DictReader(io.StringIO((tmp_path / "a-Runs.csv").read_text("utf-8"), newline="")))
    assert [row["Output"] for row in shown] == texts
    assert {(float(row["Score"]), float(row["Seconds"]), float(row["Cost"])) for row in shown} == {(0.25, 1.5, 0.5)}
