"""The reporters that belong to no system, and the one that the extension of a file asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol, TypeVar

from evalloom.core.errors import usage_error
from evalloom.reports import (
    lint_github,
    lint_json,
    lint_markdown,
    lint_sarif,
    lint_text,
    run_csv,
    run_json,
    run_jsonl,
    run_junit,
)
from evalloom.reports.lint import LintReport
from evalloom.reports.run_report import RunReport


class Named(Protocol):
    """A reporter of whatever: it goes by its name, and by the extension of its files."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...


class LintReporter(Protocol):
    """A module that writes the linter's findings in one format."""

    name: str
    suffix: str

    def render(self, report: LintReport) -> str: ...


class RunReporter(Protocol):
    """A module that writes a batch in one format, run by run."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...

    def render(self, report: RunReport, stream: IO[bytes]) -> None: ...


LINT_REPORTERS: tuple[LintReporter, ...] = (lint_text, lint_json, lint_markdown, lint_sarif, lint_github)
RUN_REPORTERS: tuple[RunReporter, ...] = (run_json, run_jsonl, run_csv, run_junit)
"""Those that belong to no system."""

Reporter = TypeVar("Reporter", bound=Named)


def by_suffix(path: Path, reporters: Iterable[Reporter]) -> Reporter:
    """The reporter whose files have this extension: the longest one that fits, so that `.hop.jsonl` is no `.jsonl`."""
    fitting = [reporter for reporter in reporters if path.name.lower().endswith(reporter.suffix)]
    if fitting:
        return max(fitting, key=lambda reporter: len(reporter.suffix))
    known = ", ".join(reporter.suffix for reporter in reporters)
    raise usage_error("unknown_format", f"-o {path}: expected a file name ending in {known}")
