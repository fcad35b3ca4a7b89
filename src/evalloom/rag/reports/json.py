"""The report of a RAG batch as one JSON document in the shape of RAG-4, with measures and cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalloom.core.clock import zulu
from evalloom.core.model import Record
from evalloom.rag.reports import content
from evalloom.reports.lint import LEVELS, absolute_posix, place, without_backslashes
from evalloom.reports.run_report import encode

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import CaseRow, RagResults
    from evalloom.rag.analysis.pairs import Pairs

name = "json"
suffix = ".json"
_DIGITS = 6
"""Decimals to keep: the last digits of a logarithm differ between machines."""


def document(results: Sequence[RagResults], root: Path, *, base: Path = Path(), exit_code: int | None = None) -> Record:
    """The report of a batch, one result per profile, with the measures of the first at the top.

    `base` is the folder that the names of case files are relative to. `exit_code` is the exit code of the command;
    without it, 1 when any case failed or ended in an error.
    """
    first = results[0]
    tool = f"evalloom rag {first.purpose}"
    rows = [(row, _item(row, result, tool, base)) for result in results for row in result.cases]
    # Sorting is stable: cases of one severity stay in their order.
    rows.sort(key=lambda listed: -listed[1]["severity_level"])
    items = [item for _, item in rows]
    counts = dict.fromkeys(LEVELS, 0)
    for item in items:
        counts[item["status_label"]] += 1
    worst = max((item["severity_level"] for item in items), default=0)
    ends_with = int(worst >= LEVELS["FAIL"]) if exit_code is None else exit_code
    return {
        "schema_version": 2,
        # The time of the batch and not of the report, so that the same batch gives the same bytes.
        "generated_at": zulu(first.created_at),
        "tool": tool,
        "root": absolute_posix(root),
        "overall": "FAIL" if ends_with else "PASS",
        "summary": {
            "overall_status": _overall(worst, ends_with),
            "overall_status_label": _overall(worst, ends_with),
            "overall_rc": ends_with,
            "max_severity_level": worst,
            "counts": counts,
            "total_items": len(items),
        },
        "errors": [_entry(row, item) for row, item in rows if item["severity_level"] >= LEVELS["FAIL"]],
        "warnings": [_entry(row, item) for row, item in rows if item["status_label"] == "WARN"],
        "counts": {
            "lines": sum(len(result.cases) for result in results),
            "cases": sum(len(result.cases) for result in results),
            "errors": counts["FAIL"] + counts["ERROR"],
            "warnings": counts["WARN"],
            "measured": sum(result.overall.cases for result in results),
            "passed": sum(result.overall.passed for result in results),
            "apart": {key: sum(result.apart[key] for result in results) for key in first.apart},
        },
        "batch": first.batch,
        "config": first.config,
        **_figures(first),
        "other_profiles": [_figures(result) for result in results[1:]],
        "items": items,
    }


def render(
    results: Sequence[RagResults],
    root: Path,
    *,
    base: Path = Path(),
    exit_code: int | None = None,
    language: str = "en",
) -> str:
    """The document as text."""
    whole = document(results, root, base=base, exit_code=exit_code)
    return msgspec.json.format(encode(whole), indent=2).decode() + "\n"


def _overall(worst: int, exit_code: int) -> str:
    """The overall label: WARN for misses that are allowed, ERROR for a batch that did not finish."""
    if exit_code not in (0, 1):
        return "ERROR"
    level = min(worst, LEVELS["WARN"]) if not exit_code else max(worst, LEVELS["FAIL"])
    return next(label for label, severity in LEVELS.items() if severity == level)


def _entry(row: CaseRow, item: Record) -> Record:
    """A case in the form of the `errors` and `warnings` lists."""
    return {
        "code": _CODES[item["status_label"]],
        "message": content.explanation(row),
        "loc": item["loc"],
        "line": row.origin.line or 1,
        "field": None,
        "case_id": row.id,
    }


_CODES = {"FAIL": "missed", "ERROR": "run_error", "WARN": "nothing_to_measure"}


def _figures(results: RagResults) -> Record:
    return {
        "profile": results.profile,
        "purpose": results.purpose,
        "k": results.k,
        "documents": results.documents,
        "deciding": results.deciding,
        "measures": _plain(results.overall.measures),
        "pass_rate": _plain(results.overall.pass_rate),
        "buckets": _plain(results.buckets),
        "tags": _plain(results.tags),
        "pairs": _pairs(results.pairs),
        "apart": results.apart,
        "unjudged": results.unjudged,
    }


def _pairs(pairs: Pairs) -> Record:
    record: Record = _plain(pairs)
    record["gaps"] = [_plain(item) | {"is_shown": item.is_shown, "conclusion": item.conclusion} for item in pairs.gaps]
    record["concepts"] = [_plain(item) | {"is_official_only": item.is_official_only} for item in pairs.concepts]
    return record


def _item(row: CaseRow, results: RagResults, tool: str, base: Path) -> Record:
    label = content.STATUS_LABELS[row.status]
    # Texts of documents and answers may have backslashes, which items must not; the batch log has them as they are.
    item: Record = without_backslashes(
        {
            "tool": tool,
            "key": row.id,
            "title": row.query or row.id,
            "status_label": label,
            "severity_level": LEVELS[label],
            "message": content.explanation(row),
            **place(row.origin, base),
            "detail": {
                "profile": results.profile,
                "status": row.status,
                "bucket": row.bucket,
                "pair_id": row.pair_id or None,
                "concept_id": row.concept_id or None,
                "tags": row.tags,
                "expected": _plain(row.expected),
                "sources": row.sources,
                "measures": _plain(row.measures),
                "missing": row.missing,
                "answer": row.answer or None,
                "error": row.error or None,
                "repeats": row.repeats,
            },
        }
    )
    return item


def _plain(value: Any) -> Any:
    return _rounded(msgspec.to_builtins(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
