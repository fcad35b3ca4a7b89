"""Reporters that are imported when the first file is written with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from evalloom.reports.formats import RunReporter
    from evalloom.reports.run_report import RunReport


class LazyReporter(Struct, frozen=True):
    """A reporter of results that is imported when the first file is written with it."""

    name: str
    suffix: str
    load: Callable[[], RunReporter]

    def render(self, report: RunReport, stream: IO[bytes]) -> None:
        self.load().render(report, stream)
