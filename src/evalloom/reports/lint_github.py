"""Findings as workflow commands, which GitHub Actions turns into annotations."""

from __future__ import annotations

from evalloom.core.model import Severity
from evalloom.core.text import printable
from evalloom.reports.lint import LintReport, verdict

name = "github"
suffix = ".github"

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: LintReport) -> str:
    lines = []
    for finding in report.findings():
        origin = finding.origin
        # Colons and commas separate the properties of a command.
        file = _escape(origin.file).replace(":", "%3A").replace(",", "%2C")
        place = f"file={file},line={origin.line or 1},col={origin.column or 1}"
        lines.append(f"::{_COMMANDS[finding.severity]} {place},title={finding.code}::{_escape(finding.message)}\n")
    return "".join([*lines, f"{verdict(report)}\n"])


def _escape(text: str) -> str:
    return printable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
