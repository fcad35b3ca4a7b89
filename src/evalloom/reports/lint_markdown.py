"""Findings as a Markdown page, for pull requests and build reports."""

from __future__ import annotations

from evalloom.core.text import pluralize, printable
from evalloom.reports.lint import LintReport, location, verdict
from evalloom.ui.report_marks import MARKDOWN

name = "markdown"
suffix = ".md"


def render(report: LintReport) -> str:
    parts = [f"# {report.tool}", f"**{verdict(report)}**", f"Generated {report.generated_at}."]
    files = ["| file | dialect | cases | errors | warnings |", "|---|---|---:|---:|---:|"]
    for file in report.checked:
        counts = f"{file.cases:,} | {file.count('error'):,} | {file.count('warning'):,}"
        files.append(f"| {_cell(file.file)} | {file.dialect} | {counts} |")
    parts.append("\n".join(files))
    findings = report.findings()
    if findings:
        table = ["| | where | code | what |", "|---|---|---|---|"]
        for finding in findings:
            cells = f"{_cell(location(finding))} | `{finding.code}` | {_cell(finding.message)}"
            table.append(f"| {report.label(finding.severity)} | {cells} |")
        parts.append("\n".join(table))
    parts += [f"… and {pluralize(number, 'more finding')} of `{code}`." for code, number in report.unlisted().items()]
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _cell(text: str) -> str:
    """Escape a text for a table cell."""
    text = printable(" ".join(text.split()))
    for mark in "\\`*_[]<>|&~$":
        text = text.replace(mark, f"\\{mark}")
    return text
