"""`/replay/compare` puts two runs side by side; `…/compare` of a dataset shows which rows two replays change."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View
from evalloom.replay.compare import (
    Pair,
    ReplayComparison,
    RunComparison,
    SegmentChange,
    build_comparison,
    compare_outcomes,
    compare_rows,
    compare_runs,
    segment_changes,
)
from evalloom.replay.pages import history, project
from evalloom.replay.pages.command import replay_command
from evalloom.replay.pages.mounted import service_of
from evalloom.replay.recipe.trace import RunRecord, RunSummary
from evalloom.replay.requests import check_id, not_found
from evalloom.replay.service import ReplayService, ReplaySummary, summary_of
from evalloom.replay.store.records import ReplayCounts
from evalloom.ui.diff import TextDiff, compare_texts

_PAGE_SIZE = 20
_REPLAYS_SHOWN = 50
_LINES_SHOWN, _ROW_LINES = 30, 12
STATUSES = ("drift", "stable", "new", "gone")


class ChangedSegment(Struct, frozen=True):
    """A segment that two runs render differently."""

    change: SegmentChange
    is_template: bool
    """Whether its template changed; if not, a value did."""


class RunsView(Struct, frozen=True):
    """Two runs side by side."""

    comparison: RunComparison
    a: RunRecord
    b: RunRecord
    segments: list[ChangedSegment]
    text: TextDiff
    answer: TextDiff | None
    """The difference of the answers, if both runs have one."""
    is_clamped: bool
    project_name: str
    dataset_name: str
    """Of `b`; empty if they are in files, or were deleted."""


class ComparedRow(Struct, frozen=True):
    """A row in two replays."""

    row_index: int
    status: str
    a: RunSummary | None
    b: RunSummary | None
    segments: list[ChangedSegment] = []
    text: TextDiff | None = None
    as_in: int | None = None
    """An earlier row of the page with the same changes, which shows them."""


class ReplaysView(Struct, frozen=True):
    """Two replays of a dataset, row by row; without two, `comparison` is None."""

    project_id: str
    dataset_id: str
    project_name: str
    dataset_name: str
    is_stored: bool
    """Whether both are stored here, so that a page can replay them."""
    replays: list[ReplaySummary]
    a: ReplaySummary | None = None
    b: ReplaySummary | None = None
    comparison: ReplayComparison | None = None
    """The counts; its rows are in `rows`."""
    rows: list[ComparedRow] = []
    status: str = ""
    total: int = 0
    page: int = 1
    pages: int = 1
    command: str = ""
    """The command that replays its files again, if they are in this folder."""


# -- two runs ----------------------------------------------------------------------------------------------


def _show_runs(request: PageRequest) -> View:
    service = service_of(request)
    a, b = request.query.get("a", ""), request.query.get("b", "")
    if not a and not b:
        # A project that `evalloom replay` read from compare.json has the id `compare`.
        return project.show(replace(request, ids={"project": "compare"}))
    if not a or not b:
        raise RequestError("validation_failed", "expected two runs, a and b, got one")
    old, new = service.run(a), service.run(b)
    shows_all = request.query.get("all") == "1"
    text, answer = compare_texts(old.trace.text, new.trace.text), None
    if old.trace.model and new.trace.model:
        answer = compare_texts(old.trace.model.answer, new.trace.model.answer)
    clamped = text.clamped(_LINES_SHOWN)
    is_clamped = not shows_all and bool(clamped.hidden_before or clamped.hidden_after)
    stored_project, stored_dataset = service.store.project(new.project_id), service.store.dataset(new.dataset_id)
    data = RunsView(
        compare_runs(old, new),
        old,
        new,
        _changes(old, new),
        clamped if is_clamped else text,
        answer,
        is_clamped,
        stored_project.name if stored_project else "",
        stored_dataset.name if stored_dataset else "",
    )
    return View("runs.html", data)


def _changes(a: RunRecord, b: RunRecord) -> list[ChangedSegment]:
    templates = {segment.node_id: segment.template for segment in a.trace.segments}
    after = {segment.node_id: segment.template for segment in b.trace.segments}
    return [
        ChangedSegment(change, templates.get(change.node_id) != after.get(change.node_id))
        for change in segment_changes(a.trace.segments, b.trace.segments)
    ]


# -- two replays -------------------------------------------------------------------------------------------


def _show_replays(request: PageRequest) -> View:
    service = service_of(request)
    project_id = check_id(request.ids["project"], "project")
    dataset_id = check_id(request.ids["dataset"], "dataset")
    replays = history.replays_of(service, project_id, dataset_id)
    stored_project, stored_dataset = service.store.project(project_id), service.store.dataset(dataset_id)
    if not replays and stored_dataset is None:
        raise not_found("dataset", dataset_id)
    view = ReplaysView(
        project_id,
        dataset_id,
        stored_project.name if stored_project else "",
        stored_dataset.name if stored_dataset else "",
        bool(stored_project and stored_dataset),
        [summary_of(one) for one in replays[:_REPLAYS_SHOWN]],
    )
    chosen = _choose(request, service, dataset_id, replays)
    if chosen:
        return View("replays.html", _compared(request, service, view, *chosen))
    newest = view.replays[0] if view.replays and not view.is_stored else None
    return View("replays.html", replace(view, command=replay_command(request.site, newest)))


def _choose(
    request: PageRequest, service: ReplayService, dataset_id: str, replays: list[ReplayCounts]
) -> tuple[ReplayCounts, ReplayCounts] | None:
    """Return the two replays that the query names, the older first if they are ticked; by default the last two."""
    ticked = request.query.getlist("r")
    if ticked:
        if len(ticked) != 2:
            raise RequestError("validation_failed", f"r: expected two replays, got {len(ticked)}")
        two = sorted((history.find_replay(service, dataset_id, id) for id in ticked), key=lambda one: one.number)
        return two[0], two[1]
    a, b = request.query.get("a", ""), request.query.get("b", "")
    newer = history.find_replay(service, dataset_id, b) if b else None
    newer = newer or next((one for one in replays if one.state == "complete" and one.replay.id != a), None)
    if newer is None:
        return None
    older = history.find_replay(service, dataset_id, a) if a else history.before(service, newer)
    return (older, newer) if older else None


def _compared(
    request: PageRequest, service: ReplayService, view: ReplaysView, a: ReplayCounts, b: ReplayCounts
) -> ReplaysView:
    store, ids = service.store, (a.replay.id, b.replay.id)
    pairs = compare_rows(store.summaries(ids[0]), store.summaries(ids[1]))
    outcomes = compare_outcomes(store.outcomes(ids[0]), store.outcomes(ids[1]))
    comparison = build_comparison(ids, pairs, outcomes, [], (a.state, b.state))
    has_changes = comparison.drift or comparison.new or comparison.gone
    status = request.choice(
        "status", (*STATUSES, "all"), "drift" if comparison.drift else "all" if has_changes else "stable"
    )
    matching = [pair for pair in pairs if status in ("all", pair.status)]
    page = request.number("page", 1)
    shown = matching[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    return replace(
        view,
        a=summary_of(a),
        b=summary_of(b),
        comparison=comparison,
        rows=_rows(service, shown),
        status=status,
        total=len(matching),
        page=page,
        pages=max(1, -(-len(matching) // _PAGE_SIZE)),
    )


def _rows(service: ReplayService, pairs: list[Pair]) -> list[ComparedRow]:
    """Compare the texts of rows that drift; the same changes are shown once."""
    rows: list[ComparedRow] = []
    first: dict[tuple[str, ...], int] = {}
    for pair in pairs:
        if pair.status != "drift" or pair.a is None or pair.b is None:
            rows.append(ComparedRow(pair.row_index, pair.status, pair.a, pair.b))
            continue
        old, new = service.run(pair.a.run_id), service.run(pair.b.run_id)
        text = compare_texts(old.trace.text, new.trace.text)
        changed = tuple(f"{line.kind} {line.text}" for line in text.lines if line.kind != "same")
        shown_by = first.setdefault(changed, pair.row_index)
        is_repeated = shown_by != pair.row_index
        rows.append(
            ComparedRow(
                pair.row_index,
                "drift",
                pair.a,
                pair.b,
                _changes(old, new),
                None if is_repeated else text.clamped(_ROW_LINES),
                shown_by if is_repeated else None,
            )
        )
    return rows


PAGES = (Page("/replay/compare", _show_runs), Page("/replay/{project}/{dataset}/compare", _show_replays))
