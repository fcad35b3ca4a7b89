"""Findings as a Markdown page, for pull requests and build reports."""

from __future__ import annotations

from evalloom.core.model import Finding
from evalloom.core.text import pluralize, printable
from evalloom.reports.lint import LintReport, location, verdict
from evalloom.ui.report_marks import MARKDOWN

name = "markdown"
suffix = ".md"


def render(report: LintReport) -> str:
    parts = [f"# {report.tool}", f"**{verdict(report)}**", f"Generated {report.generated_at}."]
    files = ["| file | dialect | cases | errors | warnings |", "|---|---|---:|---:|---:|"]
    files += [
        f"| {_cell(one.file)} | {one.dialect} | {one.cases:,} | {one.count('error'):,} | {one.count('warning'):,} |"
        for one in report.checked
    ]
    parts.append("\n".join(files))
    findings = report.findings()
    if findings:
        table = ["| | where | code | what |", "|---|---|---|---|"]
        table += [f"| {report.label(one.severity)} {_cells(one)} |" for one in findings]
        parts.append("\n".join(table))
    parts += [f"… and {pluralize(number, 'more finding')} of `{code}`." for code, number in report.unlisted().items()]
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _cells(finding: Finding) -> str:
    return f"| {_cell(location(finding))} | `{finding.code}` | {_cell(finding.message)}"


def _cell(text: str) -> str:
    """Text that stays inside its cell and is shown as it is."""
    text = printable(" ".join(text.split()))
    for mark in "\\`*_[]<>|&~$":
        text = text.replace(mark, f"\\{mark}")
    return text
