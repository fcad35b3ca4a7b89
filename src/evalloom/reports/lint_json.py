"""Findings as the one JSON document of RAG-4."""

from __future__ import annotations

import json

from evalloom.reports.lint import LintReport, document

name = "json"
suffix = ".json"


def render(report: LintReport) -> str:
    text = json.dumps(document(report), ensure_ascii=False, indent=2) + "\n"
    # A file name that is not UTF-8 has half characters in it, which JSON can only write as escapes.
    return text.encode("utf-8", "backslashreplace").decode()
