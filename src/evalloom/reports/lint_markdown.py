"""Findings as a Markdown page, for pull requests and build reports."""

from __future__ import annotations

from evalloom.reports.lint import LABELS, LintReport, location, tell, verdict

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
        table += [
            f"| {LABELS[finding.severity]} | {_cell(location(finding))} | `{finding.code}` | {_cell(finding.message)} |"
            for finding in findings
        ]
        parts.append("\n".join(table))
    parts += [f"… and {tell(number, 'more finding')} of `{code}`." for code, number in report.unlisted().items()]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """Text that stays inside its cell and is shown as it is."""
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
