"""The report of a lint run, which every reporter renders, and its JSON document (RAG-4)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote as quote_url

from msgspec import Struct, structs

from evalloom.core.clock import zulu
from evalloom.core.model import Checked, Finding, Origin, Severity
from evalloom.core.text import pluralize

LABELS: dict[Severity, str] = {"error": "FAIL", "warning": "WARN", "info": "INFO"}
LEVELS = {"PASS": 0, "INFO": 1, "WARN": 2, "FAIL": 3, "ERROR": 4}
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


class LintReport(Struct, frozen=True):
    """The findings about some files. With `strict`, a warning fails the report as an error does."""

    checked: list[Checked]
    tool: str
    root: Path
    generated_at: str
    strict: bool = False
    base: Path = Path()
    """The folder that the names of the files are relative to."""

    def label(self, severity: Severity) -> str:
        """Return the status of findings of this severity."""
        return LABELS["error" if self.strict and severity == "warning" else severity]

    def count(self, severity: Severity) -> int:
        return sum(file.count(severity) for file in self.checked)

    @property
    def passed(self) -> bool:
        return not self.count("error") and not (self.strict and self.count("warning"))

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else 2

    def findings(self) -> list[Finding]:
        """Return the listed findings, the most severe first, then in the order of files and lines."""
        findings = [finding for file in self.checked for finding in in_line_order(file.findings)]
        return sorted(findings, key=lambda finding: _ORDER[finding.severity])

    def first_of_each(self, most: int) -> LintReport:
        """Return the report with at most this number of listed findings of each code in each file."""
        return structs.replace(self, checked=[_first_of_each(file, most) for file in self.checked])

    def unlisted(self) -> dict[str, int]:
        """Return the number of findings of each code that are counted but not listed."""
        counted: Counter[str] = Counter()
        for file in self.checked:
            for (code, _), number in file.counts.items():
                counted[code] += number
            counted.subtract(finding.code for finding in file.findings)
        return {code: number for code, number in sorted(counted.items()) if number > 0}


def in_line_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.origin.file, finding.origin.line, finding.origin.column))


def _first_of_each(file: Checked, most: int) -> Checked:
    listed: Counter[str] = Counter()
    findings = []
    for finding in in_line_order(file.findings):
        listed[finding.code] += 1
        if listed[finding.code] <= most:
            findings.append(finding)
    return structs.replace(file, findings=findings)


def items(report: LintReport) -> list[dict[str, Any]]:
    """Return the items of the document, the most severe first: the findings, and a PASS for each file without any."""
    passed = [_passed_item(report, file) for file in report.checked if not file.counts]
    return [_item(report, finding) for finding in report.findings()] + passed


def document(report: LintReport) -> dict[str, Any]:
    """Return the report as a JSON document in the format of RAG-4."""
    findings, listed = report.findings(), items(report)
    counts = dict.fromkeys(LEVELS, 0) | {"PASS": sum(not file.counts for file in report.checked)}
    for severity in LABELS:
        counts[report.label(severity)] += report.count(severity)
    worst = max((item["severity_level"] for item in listed), default=0)
    status = next(label for label, level in LEVELS.items() if level == worst)
    return {
        "schema_version": 2,
        "generated_at": zulu(report.generated_at),
        "tool": report.tool,
        "root": absolute_posix(report.root),
        "overall": "PASS" if report.passed else "FAIL",
        "summary": {
            "overall_status": status,
            "overall_status_label": status,
            "overall_rc": report.exit_code,
            "max_severity_level": worst,
            "counts": counts,
            "total_items": len(listed),
        },
        "counts": {
            "lines": sum(file.lines for file in report.checked),
            "cases": sum(file.cases for file in report.checked),
            "errors": report.count("error"),
            "warnings": report.count("warning"),
        },
        "files": [
            {
                "file": file.file,
                "dialect": file.dialect,
                "reason": file.reason,
                "lines": file.lines,
                "cases": file.cases,
            }
            for file in report.checked
        ],
        "errors": [_entry(finding) for finding in findings if finding.severity == "error"],
        "warnings": [_entry(finding) for finding in findings if finding.severity == "warning"],
        "not_listed": report.unlisted(),
        "items": listed,
    }


def location(origin: Origin) -> str:
    """Return `path:line:col`; a finding about a whole file points at its first line."""
    return f"{without_backslashes(origin.file or '<unknown>')}:{origin.line or 1}:{origin.column or 1}"


def place(origin: Origin, base: Path) -> dict[str, str]:
    """Return `loc`, and `loc_uri` as a link that VS Code opens; stdin has no address, and so no link.

    The path follows `file` with one slash, the form that every version of VS Code opens.
    """
    where = {"loc": location(origin)}
    if origin.file in ("", "<stdin>"):
        return where
    path = quote_url(os.path.abspath(base / origin.file), safe="/:", errors="surrogateescape").lstrip("/")
    return {**where, "loc_uri": f"vscode://file/{path}:{origin.line or 1}:{origin.column or 1}"}


def absolute_posix(path: Path) -> str:
    """Return an absolute path that is written with `/` only."""
    return str(without_backslashes(Path(os.path.abspath(path)).as_posix()))


def without_backslashes(value: Any) -> Any:
    """Return a value with `/` for each backslash in its strings, as report-output-v2 demands of items."""
    if isinstance(value, str):
        # A quoted text has two backslashes for one.
        return value.replace("\\\\", "/").replace("\\", "/")
    if isinstance(value, dict):
        return {without_backslashes(key): without_backslashes(field) for key, field in value.items()}
    return [without_backslashes(field) for field in value] if isinstance(value, list) else value


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "loc": location(finding.origin),
        "line": finding.origin.line or None,
        "field": finding.field or None,
        "case_id": finding.case_id or None,
    }


def _item(report: LintReport, finding: Finding) -> dict[str, Any]:
    label = report.label(finding.severity)
    return {
        "tool": report.tool,
        "key": finding.code,
        "title": finding.code.replace("_", " "),
        "status_label": label,
        "severity_level": LEVELS[label],
        "message": without_backslashes(finding.message),
        **place(finding.origin, report.base),
        "detail": {
            "field": without_backslashes(finding.field) or None,
            "case_id": without_backslashes(finding.case_id) or None,
        },
    }


def _passed_item(report: LintReport, checked: Checked) -> dict[str, Any]:
    return {
        "tool": report.tool,
        "key": "passed",
        "title": "passed",
        "status_label": "PASS",
        "severity_level": LEVELS["PASS"],
        "message": without_backslashes(
            f"{pluralize(checked.cases, 'case')} in the dialect {checked.dialect}, no findings"
        ),
        **place(Origin(checked.file), report.base),
        "detail": {},
    }


def verdict(report: LintReport) -> str:
    """Return the summary line."""
    word = "PASS" if report.passed else "FAIL"
    files, cases = len(report.checked), sum(file.cases for file in report.checked)
    counts = f"{pluralize(report.count('error'), 'error')}, {pluralize(report.count('warning'), 'warning')}"
    strict = " (--strict: warnings fail)" if report.strict and not report.count("error") and not report.passed else ""
    return f"{word}: {counts} in {pluralize(cases, 'case')} of {pluralize(files, 'file')}{strict}"
