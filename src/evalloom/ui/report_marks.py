"""Marks in the reports of evalloom: it never indexes one as a user's document, and replaces no other file."""

from __future__ import annotations

import re
from pathlib import Path

GENERATOR = "evalloom"
"""The `generator` of an HTML page."""
MARKDOWN = "<!-- made by evalloom -->"
"""The last line of a Markdown page, an invisible comment."""
_HEAD = 2048
_LONGEST_HEAD = 64 * 1024
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_CHECK_COLUMN = rb',(?:"(?:[^"]|"")* (?:status|score)"|[^,"\r\n]* (?:status|score)|more_checks)'
_STARTS = (
    # The JSON of runs, of findings and of RAG batches.
    rb'\{\s*"schema_version": \d+,\s*(?:"generated_at": "[^"]*",\s*)?"tool": "(?:evalloom|validate_eval_cases)\b',
    # SARIF.
    rb'\{\s*"\$schema": "[^"]*sarif[^"]*",\s*"version": "[^"]*",\s*'
    rb'"runs": \[\s*\{\s*"tool": \{\s*"driver": \{\s*"name": "evalloom"',
    # JSON Lines of runs, and of replayed rows.
    rb'\{"case_id":' + _TEXT + rb',"profile":' + _TEXT + rb',"repeat":\d+,"outcome":"',
    rb'\{"runId":"[^"]*","createdAt":"[^"]*","projectId":' + _TEXT + rb',"datasetId":"',
    # Exports: results of promptfoo, a log of oaieval, OpenTelemetry spans.
    rb'\{"evalId":"evalloom-[^"]*","results":\{"version":3,',
    rb'\{"spec":\{"created_by":"evalloom",',
    rb'\{"resourceSpans":\[\{"resource":\{"attributes":\[\{"key":"service.name","value":\{"stringValue":"evalloom"\}\},',
    # JUnit.
    rb'<\?xml version="1.0" encoding="UTF-8"\?>\n'
    rb'<testsuites tests="\d+" failures="\d+" errors="\d+" skipped="\d+" time="[\d.]+">',
    # CSV, with all columns: a table with a further one of the user is no longer ours.
    rb"(?:\xef\xbb\xbf)?case_id,profile,repeat,outcome,status,score,output,error,reasons,first_wrong_step,duration_s,"
    rb"tokens,cost,tags,origin(?:" + _CHECK_COLUMN + rb")*\r?\n",
)
"""How reports begin whose formats have no place for a mark."""
_FINDINGS_END = rb"(?:^|\n)(?:PASS|FAIL): [\d,]+ errors?, [\d,]+ warnings? in [\d,]+ cases? of [\d,]+ files?\s*$"
"""The last line of findings as text."""


def is_ours(content: bytes) -> bool:
    """Whether the content of a file is a report of evalloom."""
    in_html = f'name="generator" content="{GENERATOR}"'.encode()
    return in_html in content[:_HEAD] or content.rstrip().endswith(MARKDOWN.encode())


def is_report(path: Path) -> bool:
    """Whether a file is a report of evalloom, in any of its formats, or empty."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_LONGEST_HEAD)
            stream.seek(max(0, path.stat().st_size - _HEAD))
            tail = stream.read()
    except OSError:  # what cannot be read may be anything
        return False
    if not head or is_ours(head[:_HEAD] + tail):
        return True
    if head.startswith(b"PK\x03\x04"):
        return _is_workbook(path)
    return any(re.match(start, head) for start in _STARTS) or bool(re.search(_FINDINGS_END, tail))


def _is_workbook(path: Path) -> bool:
    """Whether a file is a workbook of ours; one that a spreadsheet program saved may have notes and names another."""
    import zlib
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(path) as archive, archive.open("docProps/core.xml") as stream:
            facts = stream.read(_LONGEST_HEAD)
    except (OSError, BadZipFile, KeyError, RuntimeError, zlib.error):
        return False
    names = (rf"<dc:creator\b[^>]*>{GENERATOR}<", rf"<cp:lastModifiedBy\b[^>]*>{GENERATOR}<")
    return all(re.search(name.encode(), facts) for name in names)
