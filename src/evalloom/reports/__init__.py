"""Reporters: each turns results or findings into one kind of file."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.reports.formats import LINT_REPORTERS, RUN_REPORTERS, LintReporter, RunReporter, by_suffix
    from evalloom.reports.lazy import LazyReporter

__all__ = ["LINT_REPORTERS", "RUN_REPORTERS", "LazyReporter", "LintReporter", "RunReporter", "by_suffix"]
# Every start imports this package for what a reporter is, and few write a report.
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.reports.lazy": ("LazyReporter",),
        "evalloom.reports.formats": ("LINT_REPORTERS", "RUN_REPORTERS", "LintReporter", "RunReporter", "by_suffix"),
    },
)
