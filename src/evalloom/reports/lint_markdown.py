"""Findings as a Markdown page, for pull requests and build reports, in the form of report-output-v2 (RAG-4)."""

from __future__ import annotations

from collections.abc import Iterator

from evalloom.core.clock import zulu
from evalloom.core.text import pluralize, printable
from evalloom.reports.lint import LintReport, absolute_posix, items, verdict
from evalloom.ui.report_marks import MARKDOWN

name = "markdown"
suffix = ".md"


def render(report: LintReport) -> str:
    summary = [f"- **{verdict(report)}**", *_files(report)]
    summary += [
        f"- {pluralize(number, 'more finding')} of `{code}` not listed" for code, number in report.unlisted().items()
    ]
    summary.append(f"- {report.tool}, root `{printable(absolute_posix(report.root))}`, {zulu(report.generated_at)}")
    details = [line for item in items(report) for line in _item(item)]
    parts = ["## Summary", "\n".join(summary), "## Details", "\n".join(details) or "None.", MARKDOWN]
    return "\n\n".join(parts) + "\n"


def _files(report: LintReport) -> Iterator[str]:
    for file in report.checked:
        counts = f"{pluralize(file.count('error'), 'error')}, {pluralize(file.count('warning'), 'warning')}"
        yield f"- {_escaped(file.file)}: {_escaped(file.dialect)}, {pluralize(file.cases, 'case')}, {counts}"


def _item(item: dict[str, str]) -> Iterator[str]:
    yield f"- [{item['status_label']}] (sev={item['severity_level']}) {item['title']}"
    # The underscores of a file name stay plain, so that the place can be copied and searched for.
    place = _escaped(item["loc"], "\\`*[]<>&")
    yield f"  - loc: [{place}]({item['loc_uri']})" if "loc_uri" in item else f"  - loc: {place}"
    yield f"  - {_escaped(item['message'])} `{item['key']}`"


def _escaped(text: str, marks: str = "\\`*_[]<>&~$") -> str:
    """Return a text on one line, with everything escaped that Markdown would read as a mark."""
    text = printable(" ".join(text.split()))
    for mark in marks:
        text = text.replace(mark, f"\\{mark}")
    return text
