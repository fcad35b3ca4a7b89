"""Findings as SARIF 2.1.0, which code hosts show beside the lines of a change."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote as quote_url

import evalloom
from evalloom.core.model import Finding, Severity
from evalloom.reports.lint import LintReport

name = "sarif"
suffix = ".sarif"

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def render(report: LintReport) -> str:
    findings = report.findings()
    codes = sorted({finding.code for finding in findings})
    driver = {
        "name": "evalloom",
        "version": evalloom.__version__,
        "rules": [{"id": code, "shortDescription": {"text": code.replace("_", " ")}} for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(sarif, ensure_ascii=False, indent=2) + "\n"


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    origin = finding.origin
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote_url(origin.file, errors="surrogateescape")},
                    "region": {"startLine": origin.line or 1, "startColumn": origin.column or 1},
                }
            }
        ],
    }
