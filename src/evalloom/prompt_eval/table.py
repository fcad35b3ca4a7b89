"""The table of prompt-eval as text cells: one row per case, a score and a reason per test point (EVAL-11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding, Origin, Place, Record, Remark, error, warning
from evalloom.core.model import Path as Where
from evalloom.core.text import describe, quote
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.prompt_eval.dialect import suggest_name
from evalloom.prompt_eval.scores import Mark, ScoredCase, output_digest, points_in, read_scored
from evalloom.ui.workbook import require_openpyxl

_OF_CASE = ("test_id", "test_category", "test_subcategory", "eval_type", "test_description")
_OF_RUN = ("input_summary", "result_preview", "run_status")
TOTALS = ("total_score", "max_score", "avg_tp_score", "score_pct")
_AT_END = ("overall_comment", "is_bad_case")
COMMENT = "human_comment"
REVIEWED = "human_of"
"""The column that identifies the reviewed output; people do not fill it in."""
_FORBIDDEN = ("input", "result_aftertest")
NO_RESULT = "[NULL]"
LONGEST_PREVIEW = 300
_RISKY = lazy_pattern(r"'*[=+\-@\t\r]")
_GUARDED = lazy_pattern(r"'+[=+\-@\t\r]")
_NOT_TEXT = lazy_pattern("[\0\ud800-\udfff]")
_NUMBER = lazy_pattern(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_FIGURE = lazy_pattern(r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)(\s?%)?")
_SCORE = lazy_pattern(r"TP\w*_score")
_REASON = lazy_pattern(r"TP\w*_reason")
_ESCAPED = lazy_pattern("(_x005F_(?=x[0-9A-Fa-f]{4}_))|_x(00[01][0-9A-Fa-f]|[Ff]{3}[EeFf])_")
"""How workbooks escape characters that XML cannot contain, and underscores that would look like such an escape."""
_NOTHING = Mark()
_BAD = {True: "YES", False: "NO", None: ""}


def columns(points: Iterable[str]) -> list[str]:
    """The exact header: the fields of a case, two columns for each test point, the totals."""
    pairs = [f"{point}_{part}" for point in points for part in ("score", "reason")]
    return [*_OF_CASE, *_OF_RUN, *pairs, *TOTALS, *_AT_END]


def review_columns(points: Iterable[str]) -> list[str]:
    """Return the columns that a reviewer fills in and, last, the one that identifies the output."""
    return [*(f"human_{point}_score" for point in points), COMMENT, REVIEWED]


def review_cells(case: ScoredCase, points: Sequence[str]) -> list[str]:
    """Return the empty cells of a case for `review_columns`."""
    return [*("" for _ in points), "", output_key(case.record.get("result_aftertest"))]


def output_key(result: Any) -> str:
    """Return the digest of an output for `human_of`; it starts with a letter, because `12e4…` would become a number."""
    return f"x{output_digest(result)}"


def cells(case: ScoredCase, points: Iterable[str]) -> list[str]:
    """Return the row of a case for `columns`, each cell as the text that a reader gets back.

    NUL and lone surrogates become U+FFFD: spreadsheets cannot read the former, encodings the latter.
    """
    record, is_failed = case.record, case.is_failed
    texts = [_text(record.get(name)) for name in _OF_CASE]
    texts += [
        summary(record.get("input", {})),
        preview(record.get("result_aftertest")),
        "failed" if is_failed else "ok",
    ]
    for point in points:
        mark = _NOTHING if is_failed else case.marks.get(point, _NOTHING)
        texts += ["" if mark.score is None else str(mark.score), mark.reason]
    texts += [*_totals(case), case.comment, _BAD[case.is_bad]]
    return [_NOT_TEXT.sub("\ufffd", text) for text in texts]


def _totals(case: ScoredCase) -> list[str]:
    """Return total, maximum, average and percent; all empty if a mark is missing, so that sums include no half case."""
    if case.total is None or case.average_hundredths is None:
        return [""] * len(TOTALS)
    average = f"{case.average_hundredths // 100}.{case.average_hundredths % 100:02d}"
    return [str(case.total), str(case.max_score), average, f"{case.percent}%"]


def summary(inputs: Any) -> str:
    """Format the input of a case on one line: `field1=value1 | field2=value2`."""
    if not isinstance(inputs, dict):
        return _join_lines(_text(inputs))
    return " | ".join(f"{_join_lines(str(name))}={_join_lines(_text(value, 'null'))}" for name, value in inputs.items())


def preview(result: Any) -> str:
    """Return the first 300 characters of a result, with `…` if it is longer."""
    text = _text(result, NO_RESULT)
    return text if len(text) <= LONGEST_PREVIEW else text[:LONGEST_PREVIEW] + "…"


def _text(value: Any, nothing: str = "") -> str:
    """A text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return nothing if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _join_lines(text: str) -> str:
    """Join the lines of a text with blanks, whatever ends them."""
    lines = text.splitlines()
    return text if lines == [text] else " ".join(line.strip() for line in lines if line.strip())


# -- texts that a spreadsheet would run as a formula --------------------------------------------------


def escape_formula(text: str) -> str:
    """Prefix a text with `'` if a spreadsheet would run it as a formula, or if it looks escaped already (EVAL-13)."""
    return f"'{text}" if _RISKY.match(text) else text


def unescape_formula(text: str) -> str:
    """Undo `escape_formula`."""
    return text[1:] if _GUARDED.match(text) else text


# -- reading ------------------------------------------------------------------------------------------


class TableFile(Struct, frozen=True):
    """The content of a table file: rows of texts by column name, and findings."""

    rows: list[Row]
    findings: list[Finding]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.value))

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def read_table(path: Path, encoding: str = "") -> TableFile:
    """Read the rows of a CSV or XLSX file with their original values, even if a spreadsheet program has saved it again.

    Cells may be separated by commas, semicolons or tabs; columns may be added or moved.
    """
    is_workbook = _is_workbook(path)
    reader = RowReader(source_of(path, encoding))
    rows, findings = list[Row](), list[Finding]()
    for item in _workbook_rows(path) if is_workbook else reader:
        if isinstance(item, Problem):
            origin = Origin(path.as_posix(), *item.place)
            severity = "error" if _is_human_twice(item) else item.severity
            findings.append(Finding(item.code, severity, item.message, origin))
        elif is_workbook:
            rows.append(item)
        elif reader.layout == "csv":
            item.value = {name: unescape_formula(text) for name, text in item.value.items()}
            rows.append(item)
    table = TableFile(rows, findings)
    if "test_id" not in table.columns and not table.has_errors:
        is_empty = not rows and (is_workbook or reader.layout == "csv")
        content = "no row" if is_empty else "none"
        message = f"expected a table with a column test_id and a row for each case, got {content}"
        findings.append(Finding("not_a_table", "error", message, Origin(path.as_posix())))
    return table


def _is_human_twice(problem: Problem) -> bool:
    """Whether a column for human scores occurs twice, so that it is unclear which one counts."""
    return problem.code == "duplicate_key" and "'human" in problem.message.casefold()


def human_columns(table: TableFile) -> list[str]:
    """Return the columns for human scores and comments, even if misspelt."""
    return [name for name in table.columns if _is_human(name)]


def _is_human(name: str) -> bool:
    return name.casefold().startswith("human")


def is_entry(name: str) -> bool:
    """Whether people fill in a column."""
    return _is_human(name) and name != REVIEWED


def is_scored_table(path: Path) -> bool:
    """Whether a file is a table of scored cases, by its first and last column."""
    return {_OF_CASE[0], _AT_END[-1]} <= set(read_table(path).columns)


def has_review(path: Path) -> bool:
    """Whether a table has human scores or comments, so that it must not be replaced."""
    if not path.is_file():
        return False
    if _is_workbook(path):
        items = [item for sheet in _sheets(path).values() for item in sheet]
        # A file that cannot be read may have some.
        return _is_filled_in(items) or any(isinstance(item, Problem) and item.severity == "error" for item in items)
    table = read_table(path)
    if table.has_errors:
        # For example, saved in another encoding.
        return b"human" in path.read_bytes().lower()
    return _is_filled_in(table.rows)


def _is_filled_in(items: Iterable[Row | Problem]) -> bool:
    """Whether a cell in a column for human scores is filled in."""
    rows = (item.value for item in items if isinstance(item, Row))
    return any(text.strip() for row in rows for name, text in row.items() if is_entry(name))


def _as_text(name: str, cell: str) -> object:
    return unescape_formula(cell)


def read_row(row: dict[str, str], read: Callable[[str, str], object] = _as_text) -> Record:
    """Convert a row of the table to a record: scores and totals are numbers, and absent if the cell is empty.

    `read` converts any other cell, given the name of its column.
    """
    record: Record = {}
    for name, cell in row.items():
        is_number = name in TOTALS or _SCORE.fullmatch(name)
        if cell or not (is_number or _REASON.fullmatch(name)):
            record[name] = number_in(unescape_formula(cell)) if is_number else read(name, cell)
    return record


def row_findings(record: Record) -> Iterator[Remark]:
    """Yield a remark for each total of a row that differs from the sum of its scores."""
    computed = _computed(record)
    if "is_bad_case" in record and record["is_bad_case"] not in ("YES", "NO", ""):
        computed.pop("is_bad_case", None)
        message = f"is_bad_case: expected YES, NO or nothing, got {describe(record['is_bad_case'])}"
        yield error("bad_is_bad_case", ("is_bad_case",), message)
    for name, expected in computed.items():
        value = record.get(name)
        if value not in (None, "") and not same_cell(str(value), expected):
            message = f"{name}: expected {expected} by the scores of this row, got {describe(value)}"
            yield warning("total_differs", (name,), message)


def _computed(record: Record) -> dict[str, str]:
    """Compute the totals of a row from its scores; empty if scores are missing, which has its own finding."""
    points = points_in([record])
    is_failed = record.get("run_status") == "failed"
    if not points and not is_failed:
        return {}
    case = read_scored({**record, "result_aftertest": None if is_failed else ""}, points)
    if case.missing:
        return {"is_bad_case": "YES"} if case.is_bad else {}
    computed = dict(zip((*TOTALS, "is_bad_case"), (*_totals(case), _BAD[case.is_bad]), strict=True))
    if is_failed:
        # The row of a failed run does not show the number of test points.
        del computed["max_score"]
    return computed


def header_findings(names: Sequence[str], points: Iterable[str]) -> Iterator[Remark]:
    """Yield remarks about a header that is not exact (EVAL-11); columns for human scores may follow at its end."""
    expected = columns(points)
    for name in expected:
        if name not in names:
            yield error("column_missing", (name,), f"the column {name} is missing")
    for name in names:
        if name in _FORBIDDEN:
            yield error("raw_column", (name,), f"{name}: the table shows it shortened and has no such column")
        elif name not in expected and not name.startswith("human_"):
            yield error(
                "unknown_table_column", (name,), f"{name}: is no column of the table{suggest_name(name, expected)}"
            )
    allowed = [name for name in names if name in expected or name.startswith("human_")]
    in_order = [name for name in expected if name in names] + [name for name in allowed if name not in expected]
    for name, wanted in zip(allowed, in_order, strict=True):
        if name != wanted:
            yield error("column_order", (name,), f"{name}: expected the column {wanted} in this place")
            return


def same_cell(first: str, second: str) -> bool:
    """Whether two cells are equal, even if a spreadsheet reformatted a number: `94.00%` is `94%`, `3,00` is 3."""
    if first == second:
        return True
    figure = _figure(first)
    return figure is not None and figure == _figure(second)


def _figure(text: str) -> Decimal | None:
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        return None
    figure = Decimal(match[1].replace(",", "."))
    return figure / 100 if match[2] else figure


def number_in(text: str) -> int | float | str:
    """Return the number in a cell, as an integer if it is one, like `3.0`; any other text unchanged."""
    if not _NUMBER.fullmatch(text.strip()):
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


def _is_workbook(path: Path) -> bool:
    """Whether a file is a zip archive, as workbooks are, regardless of its name."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"PK\x03\x04"
    except OSError:
        return False  # The reader of CSV files reports why it cannot be opened.


def _is_open_document(path: Path) -> bool:
    """Whether an archive is an OpenDocument file, which starts with its media type."""
    with path.open("rb") as stream:
        return b"mimetypeapplication/vnd.oasis.opendocument" in stream.read(128)


def _workbook_rows(path: Path) -> Iterator[Row | Problem]:
    """Return the rows of the sheet that is the table: it has test ids and, if several have, human scores."""
    sheets = _sheets(path)
    tables = {name: items for name, items in sheets.items() if _has_ids(items)}
    filled = [name for name, items in tables.items() if _is_filled_in(items)]
    if len(filled) > 1:
        named = ", ".join(quote(name) for name in filled)
        message = f"the sheets {named} each have human scores or comments. Keep them in one sheet, and import again"
        yield Problem("several_reviews", "error", message)
        return
    name = next(iter(filled or tables or sheets), None)
    yield from sheets[name] if name is not None else ()


def _has_ids(items: Iterable[Row | Problem]) -> bool:
    return any("test_id" in item.value for item in items if isinstance(item, Row))


def _sheets(path: Path) -> dict[str, list[Row | Problem]]:
    """Return the rows of every sheet by name; a workbook that cannot be read is one nameless sheet with a problem."""
    if _is_open_document(path):
        message = "is an OpenDocument file, which is not read. Save it as .xlsx or as CSV"
        return {"": [Problem("bad_workbook", "error", message)]}
    require_openpyxl()
    from openpyxl import load_workbook

    try:
        # openpyxl refuses a path without the suffix of a workbook, so it gets a stream.
        with path.open("rb") as stream, path.open("rb") as formula_stream:
            values = load_workbook(stream, read_only=True, data_only=True)
            # Only this one has the formulas, which have no value until a spreadsheet program has computed them.
            formulas = load_workbook(formula_stream, read_only=True)
            pairs = zip(values.worksheets, formulas.worksheets, strict=True)
            return {str(sheet.title): _sheet_rows(sheet, formula_sheet) for sheet, formula_sheet in pairs}
    except Exception as exc:
        # A damaged workbook raises whatever its first damaged part leads to: errors of zip, XML, types or keys.
        reason = " ".join(str(exc).split())[:200] or type(exc).__name__
        message = f"cannot be read as a workbook: {reason}. Save it again as .xlsx or as CSV"
        return {"": [Problem("bad_workbook", "error", message)]}


def _sheet_rows(sheet: Any, formulas: Any) -> list[Row | Problem]:
    """Return the rows of one sheet, keyed by its first row that is not empty."""
    for worksheet in (sheet, formulas):
        # Some programs write a wrong sheet size, and cells outside it would not be read.
        worksheet.reset_dimensions()
    header: list[str] = []
    rows: list[Row | Problem] = []
    for line, (row, others) in enumerate(zip(sheet.iter_rows(), formulas.iter_rows(), strict=True), 1):
        named = chain(header, repeat(""))
        texts = [_shown(cell, other, name) for cell, other, name in zip(row, others, named, strict=False)]
        if not any(text.strip() for text in texts):
            continue
        if not header:
            header = [text.strip() for text in texts]
            rows += _repeated(header, line)
            continue
        value = dict.fromkeys(filter(None, header), "")
        value.update((name, text) for name, text in zip(header, texts, strict=False) if name)
        places: dict[Where, Place] = {(name,): Place(line, column) for column, name in enumerate(header, 1)}
        rows.append(Row(value, line, 1, b"", places))
    return rows


def _repeated(header: Sequence[str], line: int) -> Iterator[Problem]:
    for column, name in enumerate(header):
        if name and name in header[:column]:
            message = f"column {column + 1}: {quote(name)} is already the name of another column; the last one counts"
            yield Problem("duplicate_key", "warning", message, Place(line, column + 1))


def _shown(cell: Any, formula: Any, column: str) -> str:
    """Return what a spreadsheet shows in a cell, so that `2.80` and `93%` stay what they were as texts.

    Human scores stay exact: 2.999 may be shown as 3.00 but is not 3. A formula without a value is its text.
    """
    value = formula.value if cell.value is None else cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return _number_shown(value, "" if _is_human(column) else cell.number_format or "")
    # An array formula is an object with its text.
    written = str(getattr(value, "text", value))
    text = _ESCAPED.sub(lambda match: "_" if match[1] else chr(int(match[2], 16)), written)
    # If the `'` is a property of the cell, its text has none.
    return text if formula.style_array.quotePrefix else unescape_formula(text)


def _number_shown(value: float, shape: str) -> str:
    if "%" in shape:
        return f"{round(value * 100)}%"
    if shape == "0.00":
        return f"{value:.2f}"
    return str(int(value)) if float(value).is_integer() else str(value)
