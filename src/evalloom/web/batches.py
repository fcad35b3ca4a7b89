"""The start page: the newest result with its failures, what is running, and all batches."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct

from evalloom.pages.library import BatchSummary, LogLosses
from evalloom.pages.live import Progress
from evalloom.pages.page import Page, PageRequest, View

_PAGE_SIZE = 50
_FAILURES_SHOWN = 5
_NEWEST_FAILURES = """
    SELECT key, case_id, profile, repeat, status, "check", reason FROM runs
    WHERE status IN ('failed', 'error') ORDER BY number, profile, repeat LIMIT ?
"""


class ListedBatch(Struct, frozen=True):
    """A batch in the list."""

    batch: BatchSummary
    change: float | None = None
    """The difference of the pass rate to the batch before of the same target and datasets."""
    before: str = ""
    """That batch."""
    losses: LogLosses | None = None
    """What its log lost, as far as its number of lines tells."""


class FailedRun(Struct, frozen=True):
    """A failure of the newest batch."""

    run: str
    case: str
    profile: str
    repeat: int
    status: str
    check: str | None
    reason: str | None


class BatchList(Struct, frozen=True):
    """The start page."""

    latest: BatchSummary | None
    latest_losses: LogLosses | None
    failures: list[FailedRun]
    """The first failures of the newest batch that has ended."""
    running: list[Progress]
    batches: list[ListedBatch]
    total: int
    page: int
    pages: int
    search: str
    system: str
    systems: list[str]
    tries: int
    """How many single tries are left out of the list."""
    shows_tries: bool


def _show(request: PageRequest) -> View:
    every = request.site.library.summaries()
    shows_tries = request.query.get("tries") == "1"
    listed = [summary for summary in every if shows_tries or not summary.is_try]
    search, system = request.query.get("q", "").strip(), request.query.get("system", "")
    chosen = [summary for summary in listed if _matches(summary, search, system)]
    page, pages = request.number("page", 1), max(1, -(-len(chosen) // _PAGE_SIZE))
    shown = chosen[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    before = predecessors(listed)
    latest = next((summary for summary in listed if summary.state != "running" and summary.summary), None)
    running = [request.site.live.progress(summary.id) for summary in every if summary.state == "running"]
    data = BatchList(
        latest,
        request.site.library.listed_losses(latest) if latest is not None else None,
        _failures(request, latest) if latest is not None else [],
        running,
        [_listed(request, summary, before.get(summary.id)) for summary in shown],
        len(chosen),
        page,
        pages,
        search,
        system,
        sorted({summary.system for summary in listed if summary.system}),
        sum(summary.is_try for summary in every) if not shows_tries else 0,
        shows_tries,
    )
    return View("batches.html", data)


def _matches(summary: BatchSummary, search: str, system: str) -> bool:
    if system and summary.system != system:
        return False
    texts = (summary.id, summary.target, *summary.datasets, *summary.profiles)
    return not search or any(search.lower() in text.lower() for text in texts)


def predecessors(batches: list[BatchSummary]) -> dict[str, BatchSummary]:
    """Return for each batch the one before it with the same target, datasets and profiles."""

    def suite(batch: BatchSummary) -> Any:
        return (batch.target, batch.datasets, batch.profiles)

    ended = [batch for batch in batches if batch.summary.get("pass_rate") is not None]
    before: dict[str, BatchSummary] = {}
    # Stable, so that each group stays in the order of time, newest first.
    for _, group in groupby(sorted(ended, key=suite), key=suite):
        same = list(group)
        before |= {newer.id: older for newer, older in pairwise(same)}
    return before


def _listed(request: PageRequest, batch: BatchSummary, before: BatchSummary | None) -> ListedBatch:
    losses = request.site.library.listed_losses(batch)
    if before is None:
        return ListedBatch(batch, losses=losses)
    return ListedBatch(batch, batch.summary["pass_rate"] - before.summary["pass_rate"], before.id, losses)


def _failures(request: PageRequest, latest: BatchSummary) -> list[FailedRun]:
    if not latest.summary.get("failed", 0) + latest.summary.get("error", 0):
        return []
    rows = request.site.library.rows(latest.id, _NEWEST_FAILURES, [_FAILURES_SHOWN])
    return [FailedRun(*row) for row in rows]


PAGES = (Page("/", _show),)
