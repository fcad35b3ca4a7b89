"""Findings as plain lines, the most severe last, where a reader's eyes are."""

from __future__ import annotations

from evalloom.model import Finding
from evalloom.reports.lint import LintReport, tell, verdict

name = "text"
suffix = ".txt"


def render(report: LintReport) -> str:
    return "".join(f"{line}\n" for line in [*lines(report), *closing(report)])


def lines(report: LintReport) -> list[str]:
    return [str(finding) for finding in console_order(report)]


def console_order(report: LintReport) -> list[Finding]:
    """Infos, then warnings, then errors, each in the order of files and lines."""
    findings = report.findings()
    return [
        finding for severity in ("info", "warning", "error") for finding in findings if finding.severity == severity
    ]


def closing(report: LintReport) -> list[str]:
    """What was read, what is not listed, and the verdict."""
    told = [f"… and {number:,} more of {code}" for code, number in report.unlisted().items()]
    for one in report.checked:
        found = [tell(one.count("error"), "error"), tell(one.count("warning"), "warning")]
        told.append(f"{one.file}: {one.dialect} ({one.reason}), {tell(one.cases, 'case')}, {', '.join(found)}")
    return [*told, verdict(report)]
