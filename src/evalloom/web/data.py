"""Files: the datasets and documents of the project with what the linter finds in them, and one of them line by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from time import monotonic

from msgspec import Struct

from evalloom.core.model import Origin, Record, check_name
from evalloom.core.text import quote, shorten
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.files.rows import Row
from evalloom.files.source import Source
from evalloom.pages.errors import RequestError
from evalloom.pages.file_lines import Line, read_page
from evalloom.pages.file_reports import SMALL, FileFinding, FileReport
from evalloom.pages.files import FoundFile
from evalloom.pages.library import TRIES, BatchSummary
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.site import Site
from evalloom.settings import secrets
from evalloom.settings.keys import Redactor
from evalloom.ui.language import Language
from evalloom.ui.text import as_text
from evalloom.web.dialect_reason import translate

_FILES_SHOWN = 50
_LINES_SHOWN = 100
_CASES_SHOWN = 50
_LONGEST_LINE = 1_000
_LONGEST_WHOLE_LINE = 1_000_000
_LIST_S = 2.5
"""How long a list may take to check files; the others are checked when it is loaded again."""
_FILE_S = 2.0
_FINDINGS_SHOWN = 20
_BATCHES_SHOWN = 10
_MOST_LINES = 10**12
_MOST_ROWS = 20_000
"""Records of a file that is not JSONL that are read for one page of its cases."""
LINE_SUFFIXES = (".jsonl", ".ndjson")
_NO_RULES = Rules()
_Hide = Callable[[str], str]


class ListedFile(Struct, frozen=True):
    """A file in the list; without a report it was not checked yet."""

    path: str
    size: int
    modified: str
    report: FileReport | None


class FileList(Struct, frozen=True):
    """The files below a folder."""

    folder: str
    files: list[ListedFile]
    total: int
    page: int
    pages: int
    search: str
    is_cut: bool
    """Whether the folder has more files than are searched."""
    unchecked: int
    """How many small files were not checked yet, because that took too long."""
    others: int
    """How many files are left out because they are neither datasets nor documents."""
    shows_all: bool


class ShownLine(Struct, frozen=True):
    """A line with the findings about it."""

    line: Line
    findings: list[FileFinding]


class ShownCase(Struct, frozen=True):
    """A case in the table."""

    number: int
    line: int
    id: str
    inputs: str
    expected: str
    tags: list[str]
    error: str = ""
    """Why the record is not a case."""
    description: str = ""
    file: str = ""
    """The file that holds its line, if it is another one that this file names."""


class FileView(Struct, frozen=True):
    """One file."""

    path: str
    size: int
    modified: str
    encoding: str
    shows: str
    """`lines`, `cases`, or `line` for one whole line."""
    report: FileReport | None
    lines: list[ShownLine]
    cases: list[ShownCase]
    first: int
    page: int
    pages: int | None
    """None if only reading the whole file would tell."""
    refusal: str
    findings: list[FileFinding]
    """The first findings of the file, the most severe first."""
    batches: list[BatchSummary]
    more_batches: int

    def reason(self, t: Language) -> str:
        """Return why the file is read as its dialect."""
        return translate(self.report.reason, t) if self.report else ""


def _list(request: PageRequest, folder: str = "") -> View:
    site = request.site
    found = site.files.search(folder)
    search = request.query.get("q", "").strip()
    shows_all, end = request.query.get("all") == "1", monotonic() + _LIST_S
    matching = [file for file in found.files if search.lower() in file.path.lower()]
    # Those that are most likely to be test files first, in case the time is up.
    reports = {file.path: _report(site, file, end) for file in sorted(matching, key=_is_rarely_test_file)}
    listed = [ListedFile(file.path, file.size, _time(file.modified), reports[file.path]) for file in matching]
    chosen = [file for file in listed if shows_all or file.report is None or _is_test_file(file.report)]
    page, pages = request.number("page", 1), max(1, -(-len(chosen) // _FILES_SHOWN))
    data = FileList(
        folder,
        chosen[(page - 1) * _FILES_SHOWN : page * _FILES_SHOWN],
        len(chosen),
        page,
        pages,
        search,
        found.is_cut,
        sum(file.report is None and file.size <= SMALL for file in listed),
        len(listed) - len(chosen),
        shows_all,
    )
    return View("data.html", data)


def _is_rarely_test_file(file: FoundFile) -> bool:
    return file.path.endswith((".yaml", ".yml", ".json"))


def _report(site: Site, file: FoundFile, end: float) -> FileReport | None:
    try:
        return site.file_reports.get(file.path) if monotonic() < end else None
    except RequestError:
        return None  # it was removed just now


def _is_test_file(report: FileReport) -> bool:
    return report.is_document or (report.is_dataset and bool(report.cases or report.errors))


def _show(request: PageRequest) -> View | Redirect:
    site, name = request.site, request.ids["path"].rstrip("/")
    if name.startswith(f"{TRIES}/"):
        # The place of a case that was tried, which has a page of its own.
        return Redirect(f"/try/{name.removeprefix(f'{TRIES}/').partition('/')[0]}")
    if site.files.path(name).is_dir():
        return _list(request, name)
    encoding = request.query.get("encoding", "")[:40]
    source = site.files.source(name, encoding)
    assert source.path is not None
    status = source.path.stat()
    report = site.file_reports.get(name, encoding, _FILE_S)
    shows = request.choice("view", ("lines", "cases", "line"), "lines")
    if shows == "cases" and not (report is not None and report.is_dataset and report.cases):
        shows = "lines"
    one, hide = request.number("line", 0, 0, _MOST_LINES), Redactor(secrets(site.settings)).text
    size = {"lines": _LINES_SHOWN, "cases": _CASES_SHOWN, "line": 1}[shows]
    page = -(-one // size) if one else request.number("page", 1, 1, _MOST_LINES)
    first = (page - 1) * size + 1
    lines, cases, pages, refusal = [], [], None, ""
    if shows == "cases" and report is not None:
        total = report.lines if source.suffix in LINE_SUFFIXES else min(report.records, _MOST_ROWS)
        pages = max(1, -(-total // size))
        cases = [_shown_case(site, row, hide) for row in case_rows(site, source, report.kind, first, size)]
    else:
        longest = _LONGEST_WHOLE_LINE if shows == "line" else _LONGEST_LINE
        read = read_page(source, first, size, longest)
        refusal = read.refusal
        known = read.total if read.total is not None else report.lines if report is not None else None
        pages = max(1, -(-known // size)) if known is not None else None
        lines = [ShownLine(_hidden(line, hide), _findings_at(report, line.number)) for line in read.lines]
    batches = _batches_of(site, name)
    data = FileView(
        name,
        status.st_size,
        _time(status.st_mtime),
        encoding,
        shows,
        report,
        lines,
        cases,
        first,
        page,
        pages,
        refusal,
        _most_severe(report),
        batches[:_BATCHES_SHOWN],
        len(batches[_BATCHES_SHOWN:]),
    )
    return View("file.html", data)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _hidden(line: Line, hide: _Hide) -> Line:
    return Line(line.number, hide(line.text), line.rest)


def _findings_at(report: FileReport | None, line: int) -> list[FileFinding]:
    return [finding for finding in report.findings if finding.line == line] if report else []


def _most_severe(report: FileReport | None) -> list[FileFinding]:
    order = ("error", "warning", "info")
    return (
        sorted(report.findings, key=lambda finding: order.index(finding.severity))[:_FINDINGS_SHOWN] if report else []
    )


def _batches_of(site: Site, name: str) -> list[BatchSummary]:
    """Return the batches that ran a file, newest first."""
    home = os.path.abspath(site.home)
    wanted = os.path.join(home, name)
    return [
        summary
        for summary in site.library.summaries()
        if any(os.path.normpath(os.path.join(home, path)) == wanted for path in summary.datasets)
    ]


# -- cases -----------------------------------------------------------------------------------------------


class CaseRow(Struct, frozen=True):
    """A record of a file."""

    number: int
    """Its line in a JSONL file, and its place among the records of any other."""
    line: int
    dataset: Dataset
    record: Record
    file: str = ""
    """The file that holds it, if that is another one."""


def case_rows(site: Site, source: Source, dialect: str, first: int, count: int) -> Iterator[CaseRow]:
    """Yield the records of a file that are cases, from the number `first` on.

    JSONL is read from that line on, so that any page is as quick. Other files are read from their beginning.
    """
    formats = site.catalog.formats
    if source.suffix in LINE_SUFFIXES:
        lines = read_page(source, first, count, _LONGEST_WHOLE_LINE).lines
        content = "\n".join("" if line.rest else line.text for line in lines).encode("utf-8", "replace")
        dataset = Dataset(Source(source.name, None, "", content), formats, dialect)
        rows = (CaseRow(row.line + first - 1, row.line + first - 1, dataset, row.value) for row in _rows(dataset))
    else:
        dataset = Dataset(source, formats)
        numbered = islice(enumerate(_rows(dataset), 1), first - 1, min(first - 1 + count, _MOST_ROWS))
        rows = (CaseRow(number, row.line, dataset, row.value, row.file) for number, row in numbered)
    return (row for row in rows if dataset.dialect.is_case(row.record))


def _rows(dataset: Dataset) -> Iterator[Row]:
    return (item for item in dataset if isinstance(item, Row))


def _shown_case(site: Site, row: CaseRow, hide: _Hide) -> ShownCase:
    file = site.files.shown_name(row.file) if row.file else ""
    if error := record_error(row.dataset, row.record):
        return ShownCase(row.number, row.line, "", hide(shorten(as_text(row.record), 300)), "", [], error, "", file)
    case = row.dataset.case(row.record, Origin(row.dataset.source.name, row.line))
    expected = "; ".join(f"{check_name(check)} {quote(check.expected, 100)}" for check in case.checks[:5])
    inputs = next(iter(case.inputs.values())) if len(case.inputs) == 1 else case.inputs
    text = shorten(as_text(inputs), 300)
    description = hide(as_text(case.meta.get("description") or ""))
    tags = list(case.tags[:20])
    return ShownCase(row.number, row.line, case.id, hide(text), hide(expected), tags, "", description, file)


def record_error(dataset: Dataset, record: Record) -> str:
    """Return the first error of a record; empty if it can be read as a case."""
    errors = (remark for remark in dataset.dialect.findings(record, _NO_RULES) if remark.severity == "error")
    error = next(errors, None)
    return error.message if error is not None else ""


PAGES = (
    Page("/data", _list),
    Page("/data/{path:path}", _show),
)
