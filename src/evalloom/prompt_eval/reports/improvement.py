"""Writes one attempt to improve a prompt as Markdown: the changes, their reasons, and the outcome (EVAL-15)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from evalloom.ui.markdown import escape_markdown, markdown_table
from evalloom.ui.report_marks import MARKDOWN


class ImprovementReport(Struct, frozen=True):
    """The content; `changes` are change, why, evidence; `figures` name, before, after, difference, interval."""

    title: str
    verdict: str
    changes: tuple[tuple[str, str, str], ...]
    gates: tuple[tuple[str, str, bool], ...]
    figures: tuple[tuple[str, str, str, str, str], ...]
    better: tuple[str, ...]
    worse: tuple[str, ...]
    notes: tuple[str, ...]


def render(report: ImprovementReport) -> str:
    return "\n\n".join([*_lines(report), MARKDOWN]) + "\n"


def _lines(report: ImprovementReport) -> Iterator[str]:
    yield f"# {escape_markdown(report.title)}"
    yield f"**{escape_markdown(report.verdict)}**"
    yield "## What was changed"
    yield markdown_table(("change", "why", "evidence"), "---", report.changes)
    yield "## Gates"
    gates = ((asked, found, "✅ holds" if holds else "❌ does not hold") for asked, found, holds in report.gates)
    yield markdown_table(("gate", "found", ""), "---", gates)
    yield "## Figures"
    heads = ("", "prompt_a", "candidate", "difference", "95 % interval of the difference")
    yield markdown_table(heads, "-rrrr", report.figures)
    yield f"Better: {', '.join(report.better) or 'none'}. Worse: {', '.join(report.worse) or 'none'}."
    yield "\n".join(f"- {escape_markdown(note)}" for note in report.notes)
