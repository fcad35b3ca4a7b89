"""Findings as plain lines: in a file the most severe first, on the console last, where a reader's eyes are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from evalloom.core.model import Finding
from evalloom.core.text import pluralize, printable
from evalloom.reports.lint import LintReport, verdict

name = "text"
suffix = ".txt"


def render(report: LintReport) -> str:
    return _joined(report, report.findings())


def render_for_console(report: LintReport, is_spaced: bool = False) -> str:
    """Render the most severe last; `is_spaced` with the blank lines of RAG-4."""
    if not is_spaced:
        return _joined(report, console_order(report))
    findings = console_order(report)
    lines = [
        blanks + printable(str(finding)) + "\n" for blanks, finding in zip(spacing(findings), findings, strict=True)
    ]
    summary = "".join(f"{line}\n" for line in closing(report))
    return "".join(lines) + ("\n" if lines else "") + summary + "\n"


def spacing(findings: Sequence[Finding]) -> list[str]:
    """Return the blank lines before each finding: one between two, two where the severity changes (RAG-4)."""
    changes = [before.severity != finding.severity for before, finding in pairwise(findings)]
    return ["", *("\n\n" if is_other else "\n" for is_other in changes)][: len(findings)]


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
        found = [pluralize(one.count("error"), "error"), pluralize(one.count("warning"), "warning")]
        empty = one.dialect if one.is_document else "no cases"
        read = f"{one.dialect} ({one.reason}), {pluralize(one.cases, 'case')}" if one.cases else empty
        told.append(printable(f"{one.file}: {read}, {', '.join(found)}"))
    return [*told, verdict(report)]


def _joined(report: LintReport, findings: Iterable[Finding]) -> str:
    lines = [*(printable(str(finding)) for finding in findings), *closing(report)]
    return "".join(f"{line}\n" for line in lines)
