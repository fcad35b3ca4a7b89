"""Findings as the one JSON document of RAG-4."""

from __future__ import annotations

import json

from evalloom.reports.lint import LintReport, document

name = "json"
suffix = ".json"


def render(report: LintReport) -> str:
    return json.dumps(document(report), ensure_ascii=False, indent=2) + "\n"
