"""Writes the table of scored cases as an Excel workbook: frozen header, filters, coloured scores, review columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from evalloom.core.lazy import lazy_pattern
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.prompt_eval.table import (
    COMMENT,
    REVIEWED,
    TOTALS,
    cells,
    columns,
    review_cells,
    review_columns,
)
from evalloom.ui.workbook import RISKY, CellMaker, column_letter, require_openpyxl

_WIDE = lazy_pattern("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U0001f300-\U0003fffd]")

_WIDTHS = {
    "test_id": 10,
    "test_category": 15,
    "test_subcategory": 18,
    "eval_type": 14,
    "test_description": 40,
    "input_summary": 40,
    "result_preview": 55,
    "run_status": 9,
    "overall_comment": 45,
    "is_bad_case": 10,
    COMMENT: 45,
    REVIEWED: 15,
}
_WIDTH_OF_SCORE, _WIDTH_OF_REASON, _WIDTH_OF_TOTAL = 10, 40, 10
_LINE_POINTS, _MOST_LINES = 15, 12
"""The maximum height of a row in lines, so that the next case stays visible."""
_FILLS = {1: "F8B4AE", 2: "FCE3A6", 3: "BFE5C0"}
_MISSING, _HEADER, _REVIEW = "D9D9D9", "1F3A5F", "7A4E9B"


def write(stream: IO[bytes], cases: Iterable[ScoredCase], points: Sequence[str], for_review: bool = False) -> int:
    """Write the workbook; return how many cells were too long. `for_review` adds columns for human scores.

    Cells of a workbook have types, so texts need no `'` in front.
    """
    require_openpyxl()
    from openpyxl import Workbook

    names = [*columns(points), *(review_columns(points) if for_review else ())]
    workbook = Workbook(write_only=True)
    sheet: Any = workbook.create_sheet("scored results")
    _lay_out(sheet, names)
    painter = _Painter(sheet, names)
    sheet.append(painter.header())
    last = 1
    for last, case in enumerate(cases, 2):
        texts = [*cells(case, points), *(review_cells(case, points) if for_review else ())]
        sheet.row_dimensions[last].height = _height(names, texts)
        sheet.append(painter.row(texts))
    sheet.auto_filter.ref = f"A1:{column_letter(len(names))}{last}"
    if for_review:
        _add_choices(sheet, names, last)
    workbook.save(stream)
    return painter.cut


def _lay_out(sheet: Any, names: Sequence[str]) -> None:
    """Set column widths, freeze header and ids, and set up printing."""
    sheet.freeze_panes = "B2"
    for number, name in enumerate(names, 1):
        sheet.column_dimensions[column_letter(number)].width = _width(name)
    sheet.print_title_rows = "1:1"
    sheet.page_setup.orientation = "landscape"


def _width(name: str) -> int:
    if name in _WIDTHS:
        return _WIDTHS[name]
    if name in TOTALS:
        return _WIDTH_OF_TOTAL
    # The id of a test point does not wrap, so its column must be wide enough.
    return _WIDTH_OF_REASON if name.endswith("_reason") else max(_WIDTH_OF_SCORE, min(len(name), 24) + 3)


def _height(names: Sequence[str], texts: Sequence[str]) -> int:
    lines = max(_lines(text, _width(name)) for name, text in zip(names, texts, strict=True))
    return _LINE_POINTS * min(lines, _MOST_LINES)


def _lines(text: str, width: int) -> int:
    """Estimate how many lines a text takes in a column; a Chinese character is as wide as two others."""
    if len(text) > width * _MOST_LINES:
        return _MOST_LINES
    wide = len(text) + len(_WIDE.findall(text))
    return -(-wide // (width - 1)) + text.count("\n") or 1


def _number(text: str) -> float:
    """Return the number of a score or total, so that the cell can be sorted and summed."""
    return int(text[:-1]) / 100 if text.endswith("%") else float(text) if "." in text else int(text)


def _is_score(name: str) -> bool:
    return name.startswith("TP") and name.endswith("_score")


def _is_human_score(name: str) -> bool:
    return name.startswith("human_") and name.endswith("_score")


class _Painter:
    """Builds the cells of one sheet, with the colours of scores."""

    def __init__(self, sheet: Any, names: Sequence[str]) -> None:
        from openpyxl.styles import Alignment, Font

        self._maker = CellMaker(sheet)
        self._names = names
        wrapped: dict[str, Any] = {"alignment": Alignment(wrap_text=True, vertical="top")}
        centred: dict[str, Any] = {"alignment": Alignment(horizontal="center", vertical="top")}
        heading: dict[str, Any] = {
            "alignment": Alignment(wrap_text=True, horizontal="center", vertical="center"),
            "font": Font("Calibri", 11, bold=True, color="FFFFFF"),
        }
        bold = Font("Calibri", 11, bold=True)
        make = self._maker.style
        self._styles = {
            "header": make(_HEADER, **heading),
            "header of review": make(_REVIEW, **heading),
            "text": make(**wrapped),
            # Otherwise a text becomes a formula when the cell is edited.
            "risky text": make(**wrapped, quotePrefix=True),
            "bad": make(_FILLS[1], **wrapped, font=bold),
            "risky bad": make(_FILLS[1], **wrapped, font=bold, quotePrefix=True),
            "missing": make(_MISSING, **wrapped),
            "number": make(**centred),
            "avg_tp_score": make(**centred, number_format="0.00"),
            "score_pct": make(**centred, number_format="0%"),
            **{str(score): make(colour, **centred) for score, colour in _FILLS.items()},
        }

    @property
    def cut(self) -> int:
        """How many texts were too long."""
        return self._maker.cut

    def header(self) -> Iterator[Any]:
        for name in self._names:
            yield self._cell(name, "header of review" if name.startswith("human_") else "header")

    def row(self, texts: Sequence[str]) -> Iterator[Any]:
        """Build the cells of one case; a bad one has a red id and last column, and a missing score is grey."""
        is_run = texts[self._names.index("run_status")] == "ok"
        is_bad = texts[self._names.index("is_bad_case")] == "YES"
        for name, text in zip(self._names, texts, strict=True):
            if text and (_is_score(name) or name in TOTALS):
                style = text if _is_score(name) else name if name in self._styles else "number"
                yield self._cell(_number(text), style)
            elif is_run and _is_score(name):
                yield self._cell("", "missing")
            elif _is_human_score(name):
                yield self._cell("", "number")
            elif name in ("test_id", "is_bad_case") and is_bad:
                yield self._cell(text, "risky bad" if text.startswith(RISKY) else "bad")
            else:
                yield self._cell(text, "risky text" if text.startswith(RISKY) else "text")

    def _cell(self, value: str | float, style: str) -> Any:
        return self._maker.cell(value, self._styles[style])


def _add_choices(sheet: Any, names: Sequence[str], last: int) -> None:
    """Let a reviewer choose 1, 2 or 3, and colour the choice."""
    from openpyxl.formatting.rule import CellIsRule
    from openpyxl.styles import PatternFill
    from openpyxl.worksheet.datavalidation import DataValidation

    choice = DataValidation(type="list", formula1='"1,2,3"', allow_blank=True)
    choice.errorTitle, choice.error = "Score", "1, 2 or 3; leave it empty where you have not looked."
    choice.showErrorMessage = True
    sheet.data_validations.append(choice)
    for number, name in enumerate(names, 1):
        if _is_human_score(name):
            cells_of_column = f"{column_letter(number)}2:{column_letter(number)}{max(last, 2)}"
            choice.add(cells_of_column)
            for score, colour in _FILLS.items():
                fill = PatternFill("solid", bgColor=colour)
                rule = CellIsRule("equal", [str(score)], fill=fill)  # type: ignore[no-untyped-call]
                sheet.conditional_formatting.add(cells_of_column, rule)
