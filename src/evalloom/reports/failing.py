"""The cases of a batch that did not pass, for reports that list a few: each once, by its worst repeat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalloom.core.repeats import count_of, meets, with_occurrence, worst_first
from evalloom.reports.run_report import ReportRow, RunReport

CaseKey = tuple[str, str, int]
"""Profile, case id and occurrence."""


def failing_cases(report: RunReport, rows: Iterable[ReportRow], only_lost: bool = False) -> Iterator[ReportRow]:
    """Yield the worst repeat of each case that failed or met an error; `only_lost` leaves out those that did before."""
    lost = _lost(report) if only_lost else None
    pass_if = report.summary.get("pass_if")
    for key, repeats in _cases(report, rows):
        run, scored = repeats[0]
        is_bad = scored.status in ("failed", "error") and not meets(count_of(repeats), pass_if)
        # A case in quarantine does not decide.
        if is_bad and (lost is None or key in lost) and not report.is_quarantined(run):
            yield run, scored


def _cases(report: RunReport, rows: Iterable[ReportRow]) -> Iterator[tuple[CaseKey, list[ReportRow]]]:
    by_number = bool(report.compared and report.compared.by_number)
    current: CaseKey | None = None
    repeats: list[ReportRow] = []
    for id, occurrence, run, scored in with_occurrence(rows, by_number):
        key = (run.profile, id, occurrence)
        if current is not None and key != current:
            yield current, worst_first(repeats)
            repeats = []
        current = key
        repeats.append((run, scored))
    if current is not None:
        yield current, worst_first(repeats)


def _lost(report: RunReport) -> set[CaseKey] | None:
    if report.compared is None:
        return None
    return {
        (comparison.profile, change.case_id, change.occurrence)
        for comparison in report.compared.comparisons
        for change in comparison.changes
        if change.change == "lost"
    }
