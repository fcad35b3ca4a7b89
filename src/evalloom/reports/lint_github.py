"""Findings as workflow commands, which GitHub Actions turns into annotations."""

from __future__ import annotations

from evalloom.core.model import Finding, Severity
from evalloom.core.text import printable
from evalloom.reports.lint import LintReport, verdict

name = "github"
suffix = ".github"

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: LintReport) -> str:
    return "".join(f"{line}\n" for line in [*map(_command, report.findings()), verdict(report)])


def _command(finding: Finding) -> str:
    origin = finding.origin
    place = f"file={_property(origin.file)},line={origin.line or 1},col={origin.column or 1}"
    return f"::{_COMMANDS[finding.severity]} {place},title={finding.code}::{_data(finding.message)}"


def _data(text: str) -> str:
    return printable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
