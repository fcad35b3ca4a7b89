"""Findings as workflow commands, which GitHub Actions turns into annotations."""

from __future__ import annotations

from evalloom.core.model import Severity
from evalloom.reports.lint import LintReport, verdict
from evalloom.reports.workflow_commands import workflow_command

name = "github"
suffix = ".github"

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: LintReport) -> str:
    lines = []
    for finding in report.findings():
        origin = finding.origin
        place = {"line": origin.line or 1, "col": origin.column or 1}
        kind = _COMMANDS[finding.severity]
        lines.append(workflow_command(kind, finding.message, file=origin.file, **place, title=finding.code) + "\n")
    return "".join([*lines, f"{verdict(report)}\n"])
