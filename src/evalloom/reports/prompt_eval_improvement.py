"""One attempt to improve a prompt, as Markdown: what was changed and why, and what came of it (EVAL-15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct


class ImprovementReport(Struct, frozen=True):
    """An attempt in words; `changes` are change, why, evidence; `figures` name, before, after, difference, interval."""

    title: str
    verdict: str
    changes: tuple[tuple[str, str, str], ...]
    gates: tuple[tuple[str, str, bool], ...]
    figures: tuple[tuple[str, str, str, str, str], ...]
    better: tuple[str, ...]
    worse: tuple[str, ...]
    notes: tuple[str, ...]


def render(report: ImprovementReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ImprovementReport) -> Iterator[str]:
    yield from (f"# {_text(report.title)}", "", f"**{_text(report.verdict)}**", "")
    yield from ("## What was changed", "")
    yield from _table(("change", "why", "evidence"), report.changes)
    yield from ("", "## Gates", "")
    gates = ((asked, found, "✅ holds" if holds else "❌ does not hold") for asked, found, holds in report.gates)
    yield from _table(("gate", "found", ""), gates)
    yield from ("", "## Figures", "")
    yield from _table(("", "prompt_a", "candidate", "difference", "95 % interval of the difference"), report.figures)
    yield from ("", f"Better: {', '.join(report.better) or 'none'}. Worse: {', '.join(report.worse) or 'none'}.", "")
    yield from (f"- {_text(note)}" for note in report.notes)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(_text, row))} |" for row in rows)


def _text(text: str) -> str:
    """A text of anybody's in one cell: nothing in it makes a table, a link or a tag."""
    flat = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\|`*_<>[]#" else sign for sign in flat)
