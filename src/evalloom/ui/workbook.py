"""Cells of Excel workbooks: texts are texts and never formulas, fit into a cell, and share their styles."""

from __future__ import annotations

from importlib.util import find_spec
from math import isfinite
from typing import Any

from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern

LONGEST_CELL = 32_767
"""The maximum length of a cell, in UTF-16 code units."""
MOST_ROWS = 1_048_576
"""The maximum number of rows of a sheet."""
RISKY = tuple("=+-@\t'")
"""A text that starts with one of these becomes a formula, or loses the sign, when its cell is edited."""
_CUT = "… [cut: too long for a cell]"
_ILLEGAL = lazy_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPE = lazy_pattern("_(?=x[0-9A-Fa-f]{4}_)")


def require_openpyxl() -> None:
    """Raise if openpyxl, which reads and writes workbooks, is not installed."""
    if find_spec("openpyxl") is None:
        message = "an .xlsx file needs openpyxl, which is not installed. Type: pip install 'evalloom[xlsx]'"
        raise EvalloomError("xlsx_missing", message)


def column_letter(number: int) -> str:
    from openpyxl.utils import get_column_letter

    return get_column_letter(number)


class CellMaker:
    """Makes the cells of one sheet, and counts the texts that were too long."""

    def __init__(self, sheet: Any) -> None:
        self.cut = 0
        self._sheet = sheet

    def style(self, colour: str = "", **properties: Any) -> Any:
        """Return a style for cells: building one per cell would take most of the time."""
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

    def cell(self, value: str | float | None, style: Any) -> Any:
        """Return a cell with a number or a text; None and an empty text leave it empty."""
        from openpyxl.cell import WriteOnlyCell

        cell: Any = WriteOnlyCell(self._sheet)
        cell._style = style
        if isinstance(value, float) and not isfinite(value):
            value = str(value)  # a workbook has no such number
        if isinstance(value, str) and value:
            # openpyxl would guess that a text starting with `=` is a formula.
            cell.value, cell.data_type = self._fitting(value), "s"
        elif value is not None and value != "":
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
