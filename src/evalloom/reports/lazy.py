"""Reporters that are imported when they write their first file."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from evalloom.reports.formats import LintReporter, RunReporter
    from evalloom.reports.lint import LintReport
    from evalloom.reports.run_report import RunReport


class LazyReporter(Struct, frozen=True):
    """A reporter of results that `load` imports on first use."""

    name: str
    suffix: str
    load: Callable[[], RunReporter]

    def render(self, report: RunReport, stream: IO[bytes]) -> None:
        self.load().render(report, stream)


class LazyLintReporter(Struct, frozen=True):
    """A reporter of findings that `load` imports on first use."""

    name: str
    suffix: str
    load: Callable[[], LintReporter]

    def render(self, report: LintReport) -> str:
        return self.load().render(report)
