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
    require_openpyxl,
    review_cells,
    review_columns,
)

LONGEST_CELL = 32_767
"""The maximum length of a cell, in UTF-16 code units."""
_CUT = "… [cut: too long for a cell]"
_ILLEGAL = lazy_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ESCAPE = lazy_pattern("_(?=x[0-9A-Fa-f]{4}_)")
_WIDE = lazy_pattern("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U0001f300-\U0003fffd]")
_RISKY = tuple("=+-@\t'")

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
    sheet.auto_filter.ref = f"A1:{_letter(len(names))}{last}"
    if for_review:
        _add_choices(sheet, names, last)
    workbook.save(stream)
    return painter.cut


def _lay_out(sheet: Any, names: Sequence[str]) -> None:
    """Set column widths, freeze header and ids, and set up printing."""
    sheet.freeze_panes = "B2"
    for number, name in enumerate(names, 1):
        sheet.column_dimensions[_letter(number)].width = _width(name)
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


def _letter(number: int) -> str:
    from openpyxl.utils import get_column_letter

    return get_column_letter(number)


def _number(text: str) -> float:
    """Return the number of a score or total, so that the cell can be sorted and summed."""
    return int(text[:-1]) / 100 if text.endswith("%") else float(text) if "." in text else int(text)


def _is_score(name: str) -> bool:
    return name.startswith("TP") and name.endswith("_score")


def _is_human_score(name: str) -> bool:
    return name.startswith("human_") and name.endswith("_score")


class _Painter:
    """Builds the cells of one sheet. Styles are shared: building them per cell would take most of the time."""

    def __init__(self, sheet: Any, names: Sequence[str]) -> None:
        from openpyxl.styles import Alignment, Font

        self.cut = 0
        self._sheet = sheet
        self._names = names
        wrapped: dict[str, Any] = {"alignment": Alignment(wrap_text=True, vertical="top")}
        centred: dict[str, Any] = {"alignment": Alignment(horizontal="center", vertical="top")}
        heading: dict[str, Any] = {
            "alignment": Alignment(wrap_text=True, horizontal="center", vertical="center"),
            "font": Font("Calibri", 11, bold=True, color="FFFFFF"),
        }
        bold = Font("Calibri", 11, bold=True)
        self._styles = {
            "header": self._style(_HEADER, **heading),
            "header of review": self._style(_REVIEW, **heading),
            "text": self._style(**wrapped),
            # Otherwise a text becomes a formula when the cell is edited.
            "risky text": self._style(**wrapped, quotePrefix=True),
            "bad": self._style(_FILLS[1], **wrapped, font=bold),
            "risky bad": self._style(_FILLS[1], **wrapped, font=bold, quotePrefix=True),
            "missing": self._style(_MISSING, **wrapped),
            "number": self._style(**centred),
            "avg_tp_score": self._style(**centred, number_format="0.00"),
            "score_pct": self._style(**centred, number_format="0%"),
            **{str(score): self._style(colour, **centred) for score, colour in _FILLS.items()},
        }

    def _style(self, colour: str = "", **properties: Any) -> Any:
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.styles import Border, PatternFill, Side

        line = Side(style="thin", color="D0D0D0")
        cell: Any = WriteOnlyCell(self._sheet)
        cell.border = Border(bottom=line, right=line)
        if colour:
            cell.fill = PatternFill("solid", fgColor=colour)
        for name, value in properties.items():
            setattr(cell, name, value)
        return cell._style

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
                yield self._cell(text, "risky bad" if text.startswith(_RISKY) else "bad")
            else:
                yield self._cell(text, "risky text" if text.startswith(_RISKY) else "text")

    def _cell(self, value: str | float, style: str) -> Any:
        from openpyxl.cell import WriteOnlyCell

        cell: Any = WriteOnlyCell(self._sheet)
        cell._style = self._styles[style]
        if isinstance(value, str) and value:
            # openpyxl would guess that a text starting with `=` is a formula.
            cell.value, cell.data_type = self._fitting(value), "s"
        elif value != "":
            cell.value = value
        return cell

    def _fitting(self, text: str) -> str:
        """Convert a text for a workbook: lines end in LF, and characters that XML cannot contain become U+FFFD."""
        text = _ILLEGAL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
        # A workbook shows `_x0041_` as the character with this code.
        text = _ESCAPE.sub("_x005F_", text)
        units = text.encode("utf-16-le")
        if len(units) // 2 <= LONGEST_CELL:
            return text
        self.cut += 1
        return units[: 2 * (LONGEST_CELL - len(_CUT))].decode("utf-16-le", "ignore") + _CUT


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
            cells_of_column = f"{_letter(number)}2:{_letter(number)}{max(last, 2)}"
            choice.add(cells_of_column)
            for score, colour in _FILLS.items():
                fill = PatternFill("solid", bgColor=colour)
                rule = CellIsRule("equal", [str(score)], fill=fill)  # type: ignore[no-untyped-call]
                sheet.conditional_formatting.add(cells_of_column, rule)
