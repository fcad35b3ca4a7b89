"""One batch: its result, why runs failed, and the table of its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import join

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse

from evalloom.analysis.gates import GateResult
from evalloom.core.model import Batch, DatasetFacts
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary, LogLosses
from evalloom.pages.live import Progress
from evalloom.pages.page import Page, PageRequest, Redirect, View, path_part
from evalloom.pages.start import start
from evalloom.reports.run_csv import csv_line
from evalloom.web.batch_figures import BatchFigures, batch_figures, gates_of, outcome
from evalloom.web.batches import predecessors
from evalloom.web.failure_causes import NamedCause
from evalloom.web.jobs import RESUMABLE, without_flags
from evalloom.web.run_list import COLUMNS, USUAL_COLUMNS, RunFilter, RunList, RunPage, parse_filter

_MOST_NAMED = 30
"""Failed cases that a command names one by one."""
_CSV_ROWS = 1_000
_CSV = """
    SELECT runs.case_id, profile, repeat, status, score, "check", coalesce(reason, error), step, latency_s, tokens,
        cost, model, array_to_string(runs.tags, ', '), runs.category, runs.bucket, runs.difficulty, input, expected,
        output, runs.file || ':' || runs.line, key
    FROM {runs} AS runs LEFT JOIN cases ON cases.number = runs.number AND cases.case_id = runs.case_id
    ORDER BY runs.number, profile, repeat"""
_CSV_HEAD = (
    *("case_id", "profile", "repeat", "status", "score", "check", "reason", "first_wrong_step", "latency_s", "tokens"),
    *("cost", "model", "tags", "category", "bucket", "difficulty", "input", "expected", "output", "origin", "run"),
)


class SystemPage(Struct, frozen=True):
    """The view that the system of a batch has of it."""

    title: str
    path: str


class Commands(Struct, frozen=True):
    """What to type, for a batch."""

    again: str
    """The command that made it; empty if it does not say."""
    failed: str
    """The same for the failed cases alone; empty if nothing failed or too much did."""
    report: str
    stats: str


class BatchView(Struct, frozen=True):
    """The page of a batch."""

    batch: BatchSummary
    datasets: list[DatasetFacts]
    files: list[str]
    """The name under which pages show each dataset; empty if it is not in the folder of the project."""
    models: dict[str, str]
    figures: BatchFigures
    losses: LogLosses | None
    """What its log lost, so that the figures leave it out."""
    outcome: str
    """`passed`, `failed` or `unscored`, as the exit code of the run says."""
    gates: list[GateResult] | None
    """None if the batch is too large to check them for a page."""
    progress: Progress | None
    """How far a running batch is."""
    previous: str
    """The batch before of the same target, datasets and profiles."""
    system_page: SystemPage | None
    commands: Commands
    filter: RunFilter
    cause: NamedCause | None
    """The cause that the filter names."""
    chips: dict[str, int]
    """How many runs each status has under the other filters."""
    columns: list[str]
    list: RunPage
    all_groups: bool
    """Whether all causes and groups are shown, not only the first."""


def _show(request: PageRequest) -> View:
    library = request.site.library
    id = library.path(request.ids["batch"]).name
    summary, batch = library.summary(id), library.manifest(id)
    filter = parse_filter(request)
    figures = batch_figures(library, id)
    runs = RunList(library, id, filter, figures.has_repeats)
    gates = gates_of(request.site, id, figures.total.total)
    data = BatchView(
        summary,
        batch.datasets,
        [request.site.files.shown_name(dataset.path) for dataset in batch.datasets],
        {profile.name: batch.models.get(profile.run) or profile.run for profile in batch.profiles},
        figures,
        library.log_losses(id),
        outcome(batch, figures.total, gates or [], summary.state == "stopped"),
        gates,
        request.site.live.progress(id) if summary.state == "running" else None,
        _previous(request, id),
        system_page(request, batch, id),
        _commands(request, batch, id, figures),
        filter,
        next((cause for cause in figures.causes if cause.id == filter.cause), None),
        runs.statuses(),
        _columns(request, figures),
        runs.page(request.number("page", 1)),
        request.query.get("groups") == "all",
    )
    return View("batch.html", data)


def _previous(request: PageRequest, id: str) -> str:
    before = predecessors([one for one in request.site.library.summaries() if not one.is_try]).get(id)
    return before.id if before else ""


def system_page(request: PageRequest, batch: Batch, id: str, run: str = "") -> SystemPage | None:
    """Return the view that a system has of a batch or of a run."""
    for section in request.site.catalog.pages:
        if section.has_batch is not None and section.has_batch(batch):
            path = section.run_page if run else section.batch_page
            return SystemPage(section.title, path.format(batch=path_part(id), run=path_part(run)))
    return None


def _columns(request: PageRequest, figures: BatchFigures) -> list[str]:
    chosen = [name for text in request.query.getlist("cols") for name in text.split(",") if name]
    for name in chosen:
        if name not in COLUMNS:
            raise RequestError("validation_failed", f"cols: expected {', '.join(COLUMNS)}, got {name[:80]!r}")
    usual = [*(["profile"] if "profile" in figures.by else []), *USUAL_COLUMNS]
    if not figures.has_output:
        usual.remove("output")
    return [name for name in COLUMNS if name in (chosen or usual)]


# -- commands ----------------------------------------------------------------------------------------------


def _commands(request: PageRequest, batch: Batch, id: str, figures: BatchFigures) -> Commands:
    words = again_words(batch)
    failed = [*words, "--filter", only_cases(ids)] if words and (ids := _failed_cases(request, id, figures)) else []
    return Commands(
        join(["evalloom", *words]) if words else "",
        join(["evalloom", *failed]) if failed else "",
        join(["evalloom", "report", id, "-o", "report.html"]),
        join(["evalloom", "stats", id, "--by", "tag,check"]),
    )


def again_words(batch: Batch) -> list[str]:
    """Return the words of the command that runs a batch again; none if the batch does not say how it was made."""
    name, *words = batch.command or [""]
    if name != "evalloom" or not words or words[0] not in RESUMABLE:
        return []
    return without_flags(
        words, ("--resume", "--retry-errors", "--force", "--watch"), ("--resume-from", "-o", "--output")
    )


def _failed_cases(request: PageRequest, id: str, figures: BatchFigures) -> list[str]:
    query = "SELECT DISTINCT case_id FROM runs WHERE status IN ('failed', 'error') ORDER BY 1 LIMIT ?"
    if not figures.total.failing or figures.total.failing > 20 * _MOST_NAMED:
        return []
    rows = request.site.library.rows(id, query, [_MOST_NAMED + 1])
    return [case for (case,) in rows] if len(rows) <= _MOST_NAMED else []


def only_cases(ids: list[str]) -> str:
    """Return the expression of `--filter` for some cases."""
    return " or ".join(f"id == {json.dumps(id, ensure_ascii=False)}" for id in ids)


def _run_again(request: PageRequest) -> Redirect:
    library = request.site.library
    id = library.path(request.ids["batch"]).name
    words = again_words(library.manifest(id))
    if not words:
        raise RequestError("not_resumable", "the batch does not say which command made it. Run it on the command line")
    if request.field("only") == "failed":
        ids = _failed_cases(request, id, batch_figures(library, id))
        if not ids:
            raise RequestError("validation_failed", f"only: expected 1 to {_MOST_NAMED} failed cases in the batch")
        words += ["--filter", only_cases(ids)]
    return start(request, words)


# -- download ----------------------------------------------------------------------------------------------


def _download(request: PageRequest) -> Response:
    """Stream the runs that match as CSV: one line each, repeats too."""
    library = request.site.library
    id = library.path(request.ids["batch"]).name
    batch_figures(library, id)  # a filter by cause needs its table
    runs = RunList(library, id, replace(parse_filter(request), every_run=True), has_repeats=False)

    def lines() -> Iterator[bytes]:
        # Without the mark at the beginning, Excel shows Chinese as garbage.
        yield b"\xef\xbb\xbf" + csv_line(list(_CSV_HEAD))
        with library.views(id) as views, views.connection.cursor() as cursor:
            cursor.execute(_CSV.format(runs=runs.matching), runs.values)
            while rows := cursor.fetchmany(_CSV_ROWS):
                yield b"".join(csv_line(list(row)) for row in rows)

    headers = {"content-disposition": f'attachment; filename="{id}.csv"'}
    return StreamingResponse(lines(), headers=headers, media_type="text/csv; charset=utf-8")


PAGES = (
    Page("/b/{batch}", _show),
    Page("/b/{batch}/again", _run_again, "POST"),
    Page("/b/{batch}/runs.csv", _download, has_twin=False),
)
