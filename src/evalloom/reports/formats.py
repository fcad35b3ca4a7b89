"""The reporters that belong to no system; the extension of a file selects one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from evalloom.core.errors import usage_error
from evalloom.reports.lazy import LazyLintReporter, LazyReporter

if TYPE_CHECKING:
    from evalloom.reports.lint import LintReport
    from evalloom.reports.run_report import RunReport


class Named(Protocol):
    """A reporter of any kind."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...


class LintReporter(Protocol):
    """A module that writes the linter's findings in one format."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...

    def render(self, report: LintReport) -> str: ...


class RunReporter(Protocol):
    """A module that writes a batch in one format, run by run."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...

    def render(self, report: RunReport, stream: IO[bytes]) -> None: ...


def _lint_text() -> LintReporter:
    from evalloom.reports import lint_text

    return lint_text


def _lint_json() -> LintReporter:
    from evalloom.reports import lint_json

    return lint_json


def _lint_markdown() -> LintReporter:
    from evalloom.reports import lint_markdown

    return lint_markdown


def _lint_sarif() -> LintReporter:
    from evalloom.reports import lint_sarif

    return lint_sarif


def _lint_github() -> LintReporter:
    from evalloom.reports import lint_github

    return lint_github


def _run_json() -> RunReporter:
    from evalloom.reports import run_json

    return run_json


def _run_jsonl() -> RunReporter:
    from evalloom.reports import run_jsonl

    return run_jsonl


def _run_csv() -> RunReporter:
    from evalloom.reports import run_csv

    return run_csv


def _run_junit() -> RunReporter:
    from evalloom.reports import run_junit

    return run_junit


def _run_html() -> RunReporter:
    from evalloom.reports import run_html

    return run_html


def _run_markdown() -> RunReporter:
    from evalloom.reports import run_markdown

    return run_markdown


def _run_xlsx() -> RunReporter:
    from evalloom.reports import run_xlsx
    from evalloom.ui.workbook import require_openpyxl

    # Here, because reporters are loaded before the first call is paid for.
    require_openpyxl()
    return run_xlsx


LINT_REPORTERS: tuple[LintReporter, ...] = (
    LazyLintReporter("text", ".txt", _lint_text),
    LazyLintReporter("json", ".json", _lint_json),
    LazyLintReporter("markdown", ".md", _lint_markdown),
    LazyLintReporter("sarif", ".sarif", _lint_sarif),
    LazyLintReporter("github", ".github", _lint_github),
)
RUN_REPORTERS: tuple[RunReporter, ...] = (
    LazyReporter("json", ".json", _run_json),
    LazyReporter("jsonl", ".jsonl", _run_jsonl),
    LazyReporter("csv", ".csv", _run_csv),
    LazyReporter("junit", ".xml", _run_junit),
    LazyReporter("html", ".html", _run_html),
    LazyReporter("markdown", ".md", _run_markdown),
    LazyReporter("xlsx", ".xlsx", _run_xlsx),
)
"""Reporters that belong to no system."""

Reporter = TypeVar("Reporter", bound=Named)


def by_suffix(path: Path, reporters: Iterable[Reporter]) -> Reporter:
    """Return the reporter of a file's extension: the longest that matches, as `.hop.jsonl` also ends in `.jsonl`."""
    fitting = [reporter for reporter in reporters if path.name.lower().endswith(reporter.suffix)]
    if fitting:
        return max(fitting, key=lambda reporter: len(reporter.suffix))
    known = ", ".join(reporter.suffix for reporter in reporters)
    raise usage_error("unknown_format", f"-o {path}: expected a file name ending in {known}")
