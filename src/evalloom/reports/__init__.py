"""The shelf of reporters: each turns results into one kind of file."""

from __future__ import annotations

from typing import Protocol

from evalloom.reports import lint_github, lint_json, lint_markdown, lint_sarif, lint_text
from evalloom.reports.lint import LintReport


class LintReporter(Protocol):
    """A module that writes the linter's findings in one format."""

    name: str
    suffix: str

    def render(self, report: LintReport) -> str: ...


LINT_REPORTERS: tuple[LintReporter, ...] = (lint_text, lint_json, lint_markdown, lint_sarif, lint_github)
