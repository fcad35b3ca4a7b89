"""A batch as a table: one row a run, two columns a check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Run, Scored, Verdict
from evalloom.reports.run_report import (
    RunReport,
    cell,
    label,
    not_passed,
    origin,
    reason,
    spent,
    verdict_record,
    why_without_verdicts,
)

name = "csv"
suffix = ".csv"

MOST_CHECKS = 200
"""Checks beyond this many names share the column `more_checks`: a spreadsheet holds 16,384 columns."""

_RUN_COLUMNS = (
    "case_id",
    "profile",
    "repeat",
    "outcome",
    "status",
    "score",
    "output",
    "error",
    "reasons",
    "first_wrong_step",
    "duration_s",
    "tokens",
    "cost",
    "tags",
    "origin",
)
_QUOTED = lazy_pattern(r'[",\r\n]|^\s|\s$')
_FORMULA_STARTS = frozenset("=+-@\t\r＝＋－＠")


def render(report: RunReport, stream: IO[bytes]) -> None:
    # In the order in which they first appear.
    names = list({name: None for _, scored in report.rows for name, _ in _named_verdicts(scored)})
    columns = [f"{check} {part}" for check in names[:MOST_CHECKS] for part in ("status", "score")]
    more = ["more_checks"] if len(names) > MOST_CHECKS else []
    # Without the mark at the beginning, Excel shows Chinese as garbage.
    stream.write(b"\xef\xbb\xbf" + csv_line([*_RUN_COLUMNS, *columns, *more]))
    for run, scored in report.rows:
        stream.write(csv_line([*_run_cells(run, scored), *_check_cells(scored, names)]))


def _named_verdicts(scored: Scored) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts with unique names: a second verdict of a name is numbered."""
    taken: set[str] = set()
    for verdict in scored.verdicts:
        name, number = label(verdict), 1
        while name in taken:
            number += 1
            name = f"{label(verdict)} #{number}"
        taken.add(name)
        yield name, verdict


def _run_cells(run: Run, scored: Scored) -> list[Any]:
    tokens, cost = spent(run, scored)
    return [
        run.case_id,
        run.profile,
        run.repeat,
        run.outcome,
        scored.status,
        scored.score,
        None if run.error else run.output.value,
        run.error,
        "\n".join(map(reason, not_passed(scored))) or _nothing_expected(scored),
        scored.step,
        run.duration_s,
        tokens,
        cost,
        ", ".join(run.tags),
        origin(run),
    ]


def _nothing_expected(scored: Scored) -> str:
    return why_without_verdicts(scored) if scored.status == "unscored" else ""


def _check_cells(scored: Scored, names: list[str]) -> list[Any]:
    verdicts = dict(_named_verdicts(scored))
    cells: list[Any] = []
    for name in names[:MOST_CHECKS]:
        verdict = verdicts.pop(name, None)
        cells += [verdict.status, verdict.score] if verdict else [None, None]
    if len(names) > MOST_CHECKS:
        cells.append([verdict_record(verdict) for verdict in verdicts.values()] or None)
    return cells


def csv_line(cells: list[Any]) -> bytes:
    """Return a line of a table; no cell is a formula."""
    return (",".join(map(_cell, cells)) + "\n").encode("utf-8", "backslashreplace")


def _cell(value: Any) -> str:
    text = cell(value)
    if not text or isinstance(value, int | float):
        return text
    # A spreadsheet would run such a text as a formula; the apostrophe makes it text.
    if isinstance(value, str) and text[0] in _FORMULA_STARTS:
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
