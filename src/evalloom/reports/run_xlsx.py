"""A batch as an Excel workbook: the summary, every run, every check, and the failures by cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO, Any, NamedTuple

from evalloom.analysis.tally import STATUSES, Figures
from evalloom.core.model import Run, Scored, Status
from evalloom.reports import sentences
from evalloom.reports.overview import Overview
from evalloom.reports.run_report import RunReport, cell, label, not_passed, origin, reason, spent, why_without_verdicts
from evalloom.ui.language import Language, language, phrase
from evalloom.ui.report_marks import GENERATOR
from evalloom.ui.workbook import MOST_ROWS, RISKY, CellMaker, column_letter

name = "xlsx"
suffix = ".xlsx"

_MOST_CASES = 100
_HEADER = "1F3A5F"
_FILLS: dict[Status, str] = {"passed": "BFE5C0", "failed": "F8B4AE", "error": "F8B4AE", "unscored": "FCE3A6"}


class _Column(NamedTuple):
    """The title, the width in characters, and the format of numbers."""

    title: str
    width: int
    kind: str = "text"


_RUNS = (
    _Column(phrase("Case"), 24),
    _Column(phrase("Profile"), 14),
    _Column(phrase("Repeat"), 8, "number"),
    _Column(phrase("Status"), 11, "status"),
    _Column(phrase("Score"), 8, "score"),
    _Column(phrase("Input"), 40),
    _Column(phrase("Output"), 40),
    _Column(phrase("Error"), 30),
    _Column(phrase("Reason"), 50),
    _Column(phrase("First failing step"), 16),
    _Column(phrase("Seconds"), 10, "seconds"),
    _Column(phrase("Tokens"), 10, "number"),
    _Column(phrase("Cost"), 10, "cost"),
    _Column(phrase("Tags"), 20),
    _Column(phrase("Place"), 24),
)
_CHECKS = (
    _Column(phrase("Case"), 24),
    _Column(phrase("Profile"), 14),
    _Column(phrase("Repeat"), 8, "number"),
    _Column(phrase("Check"), 20),
    _Column(phrase("Kind"), 16),
    _Column(phrase("Part"), 18),
    _Column(phrase("Status"), 11, "status"),
    _Column(phrase("Score"), 8, "score"),
    _Column(phrase("Reason"), 50),
    _Column(phrase("Expected"), 30),
    _Column(phrase("Actual"), 30),
)
_CAUSES = (
    _Column(phrase("Runs"), 8, "number"),
    _Column(phrase("First failing step"), 18),
    _Column(phrase("Check"), 20),
    _Column(phrase("Reason"), 60),
    _Column(phrase("Example"), 60),
    _Column(phrase("Cases"), 60),
)
_FORMATS = {
    "number": "#,##0",
    "score": "0.00",
    "seconds": "0.000",
    "cost": "0.0000",
    "percent": "0.0%",
}


def render(report: RunReport, stream: IO[bytes]) -> None:
    from openpyxl import Workbook

    # Rows go to a temporary file as they are appended, and texts stand in their cells: memory does not grow with them.
    workbook, t = Workbook(write_only=True), language(report.language)
    workbook.properties.creator = workbook.properties.lastModifiedBy = GENERATOR
    summary = _Sheet(workbook, t, t("Summary"))
    runs = _Table(workbook, t, t("Runs"), _RUNS)
    checks = _Table(workbook, t, t("Checks"), _CHECKS)
    overview = Overview(report)
    for run, scored in report.rows:
        overview.add(run, scored)
        runs.add(_run_cells(report, run, scored))
        for verdict in scored.verdicts:
            first = verdict.mismatches[0] if verdict.mismatches else None
            expected, actual = (cell(first.expected), cell(first.actual)) if first else ("", "")
            about = (label(verdict), verdict.kind, verdict.where, verdict.status, verdict.score, verdict.reason)
            checks.add((run.case_id, run.profile, run.repeat + 1, *about, expected, actual))
    causes = _Table(workbook, t, t("Failures by cause"), _CAUSES)
    for cause in overview.causes():
        cases = ", ".join(cause.cases[:_MOST_CASES])
        causes.add((cause.count, cause.step, cause.check, cause.reason, cause.example, cases))
    tables = (runs, checks, causes)
    _fill_summary(summary, report, overview, t, tables)
    for table in tables:
        table.close()
    workbook.save(stream)


def _run_cells(report: RunReport, run: Run, scored: Scored) -> tuple[Any, ...]:
    tokens, cost = spent(run, scored)
    case = report.case_of(run)
    reasons = "\n".join(map(reason, not_passed(scored)))
    if not reasons and scored.status == "unscored":
        reasons = why_without_verdicts(scored)
    return (
        run.case_id,
        run.profile,
        run.repeat + 1,
        scored.status,
        scored.score,
        cell(case.inputs if case else run.raw),
        "" if run.error else cell(run.output.value),
        run.error,
        reasons or run.blocked or run.skipped,
        scored.step,
        run.duration_s,
        tokens,
        cost,
        ", ".join(run.tags),
        origin(run),
    )


class _Sheet:
    """A sheet and its styles."""

    def __init__(self, workbook: Any, t: Language, title: str) -> None:
        from openpyxl.styles import Alignment, Font

        self.sheet: Any = workbook.create_sheet(title)
        self.sheet.page_setup.orientation = "landscape"
        # As wide as a page, and as many pages long as needed.
        self.sheet.sheet_properties.pageSetUpPr.fitToPage = True
        self.sheet.page_setup.fitToHeight = 0
        self.maker, self._t = CellMaker(self.sheet), t
        # Rows stay one line high, so that many fit on a screen; a long text is read in the line of the cell.
        top = Alignment(vertical="top")
        make = self.maker.style
        self.styles: dict[str, Any] = {
            "header": make(_HEADER, font=Font("Calibri", 11, bold=True, color="FFFFFF"), alignment=top),
            "title": make(font=Font("Calibri", 11, bold=True), alignment=top),
            "text": make(alignment=top),
            # Otherwise a text becomes a formula when the cell is edited.
            "risky": make(alignment=top, quotePrefix=True),
            **{kind: make(alignment=top, number_format=code) for kind, code in _FORMATS.items()},
            **{status: make(_FILLS.get(status, ""), alignment=top) for status in STATUSES},
        }

    def cell(self, value: Any, kind: str = "text") -> Any:
        if kind == "status":
            return self.maker.cell(self._t(sentences.STATUS_NAMES[value]), self.styles[value])
        if isinstance(value, str) and kind == "text":
            kind = "risky" if value.startswith(RISKY) else "text"
        return self.maker.cell(value, self.styles[kind])

    def append(self, cells: Iterable[Any]) -> None:
        self.sheet.append(list(cells))


class _Table(_Sheet):
    """A sheet with one header, which stays visible and filters; rows beyond the limit of Excel are counted."""

    def __init__(self, workbook: Any, t: Language, title: str, columns: Sequence[_Column]) -> None:
        super().__init__(workbook, t, title)
        self.title, self.rows, self.left_out = title, 0, 0
        self._columns = columns
        self.sheet.freeze_panes = "B2"
        self.sheet.print_title_rows = "1:1"
        for number, column in enumerate(columns, 1):
            self.sheet.column_dimensions[column_letter(number)].width = column.width
        self.append(self.cell(t(column.title), "header") for column in columns)

    def add(self, values: Sequence[Any]) -> None:
        if self.rows + 1 >= MOST_ROWS:
            self.left_out += 1
            return
        self.rows += 1
        self.append(self.cell(value, column.kind) for value, column in zip(values, self._columns, strict=True))

    def close(self) -> None:
        self.sheet.auto_filter.ref = f"A1:{column_letter(len(self._columns))}{self.rows + 1}"


def _fill_summary(sheet: _Sheet, report: RunReport, overview: Overview, t: Language, tables: Sequence[_Table]) -> None:
    summary = overview.summary()
    for number, width in enumerate((28, 20, *(14 for _ in range(14))), 1):
        sheet.sheet.column_dimensions[column_letter(number)].width = width
    sheet.append([sheet.cell(sentences.conclusion(t, summary), "title")])
    notes = [sentences.beside(t, summary), *sentences.remarks(t, report), sentences.until_sure(t, report)]
    for note in filter(None, notes):
        sheet.append([sheet.cell(note)])
    sheet.append([])
    for title, text in sentences.facts(t, report.batch):
        sheet.append([sheet.cell(title, "title"), sheet.cell(text)])
    sheet.append([])
    heads = [t("Profile"), t("Pass rate"), t("95 % CI, low"), t("95 % CI, high"), t("Runs")]
    heads += [t(sentences.STATUS_NAMES[status]) for status in STATUSES]
    heads += [t("Tokens"), t("Cost"), t("Median latency"), t("95th percentile")]
    sheet.append(sheet.cell(head, "header") for head in heads)
    rows: list[tuple[str, Figures, Sequence[float | None]]] = [
        (name or "–", one, (one.p50_latency_s, one.p95_latency_s)) for name, one in summary.profiles.items()
    ]
    rows.append((t("all"), summary, overview.tally.group().latencies(0.5, 0.95)))
    for name, figures, latencies in rows:
        rates = (figures.pass_rate, figures.pass_rate_low, figures.pass_rate_high)
        counts = (figures.total, *(getattr(figures, status) for status in STATUSES), figures.tokens)
        sheet.append(
            [
                sheet.cell(name),
                *(sheet.cell(rate, "percent") for rate in rates),
                *(sheet.cell(count, "number") for count in counts),
                sheet.cell(figures.cost if figures.cost or not figures.unpriced else None, "cost"),
                *(sheet.cell(latency, "seconds") for latency in latencies),
            ]
        )
    if report.gates:
        sheet.append([])
        sheet.append(sheet.cell(head, "header") for head in (t("Gate"), "", t("Reason")))
        for gate in report.gates:
            word = t("holds") if gate["holds"] else t("does not hold")
            style = "passed" if gate["holds"] else "failed"
            sheet.append([sheet.cell(gate["text"]), sheet.cell(word, style), sheet.cell(gate["reason"])])
    for table in tables:
        if table.maker.cut:
            note = t.count(
                table.maker.cut,
                "{sheet}: {n} text was too long for a cell and is cut.",
                "{sheet}: {n} texts were too long for a cell and are cut.",
                sheet=table.title,
            )
            sheet.append([sheet.cell(note)])
        if table.left_out:
            note = t("{sheet}: {n} rows are left out, because a sheet has no room for them.",
                     sheet=table.title, n=t.number(table.left_out))  # fmt: skip
            sheet.append([sheet.cell(note)])
