"""`/replay/{project}/{dataset}`: the rows of a replay with their drift, and the rows of the dataset."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.replay.compare import segment_changes
from evalloom.replay.pages import history, replaying
from evalloom.replay.pages.background import StartedReplay
from evalloom.replay.pages.command import replay_command
from evalloom.replay.pages.history import NO_PROJECT, SHOWS, RowCounts, RowState
from evalloom.replay.pages.mounted import mounted, service_of
from evalloom.replay.recipe.trace import RunRecord
from evalloom.replay.requests import MOST_IN_LIST, check_id, not_found
from evalloom.replay.service import DatasetSummary, ProjectSummary, ReplayService, ReplaySummary, summary_of
from evalloom.replay.store.records import UNMET

_PAGE_SIZE, _PREVIEW_SIZE = 50, 20
_LONGEST_ROW, _LONGEST_GIST = 4_000, 300
_REPLAYS_SHOWN = 50
TABS = ("rows", "preview", "replays")


class ShownRow(Struct, frozen=True):
    """A row of the replay in the table."""

    row: RowState
    gist: str
    """The beginning of its user segment, to recognize it by."""
    reason: str = ""
    """Why it failed, or its answer did."""
    code: str = ""
    missing: list[str] = []
    changed: list[str] = []
    """The labels of the segments that differ from the replay before."""


class PreviewRow(Struct, frozen=True):
    """A row of the dataset as JSON."""

    row_index: int
    text: str
    left_out: int = 0
    """Characters that are too many to show."""


class DatasetView(Struct, frozen=True):
    """The page of a dataset in a project; `project` or `dataset` is None if it is in a file, or was deleted."""

    project_id: str
    dataset_id: str
    project: ProjectSummary | None
    dataset: DatasetSummary | None
    tab: str
    replay: ReplaySummary | None
    """The replay that is shown, by default the newest."""
    before: ReplaySummary | None
    """The one that it is compared with: the last complete one before it."""
    counts: RowCounts
    show: str
    rows: list[ShownRow]
    total: int
    """Rows that the filter leaves."""
    preview: list[PreviewRow]
    page: int
    pages: int
    replays: list[ReplaySummary]
    started: list[StartedReplay]
    """What pages started and is running, or stopped with an error."""
    profiles: list[str]
    projects: list[ProjectSummary]
    command: str = ""
    """The command that replays its file again, if it is in this folder."""


def show(request: PageRequest) -> View:
    """Show a dataset in a project."""
    service = service_of(request)
    project_id = check_id(request.ids["project"], "project")
    dataset_id = check_id(request.ids["dataset"], "dataset")
    projects = service.projects(MOST_IN_LIST)
    stored = service.store.dataset(dataset_id)
    replays = history.replays_of(service, project_id, dataset_id)
    project = next((one for one in projects if one.id == project_id), None)
    if stored is None and not replays:
        raise not_found("dataset", dataset_id)
    if project is None and project_id != NO_PROJECT and not replays:
        raise not_found("project", project_id)
    chosen = request.query.get("replay", "")
    replay = history.find_replay(service, dataset_id, chosen) if chosen else next(iter(replays), None)
    older = history.before(service, replay) if replay else None
    rows, counts = mounted(request).history.of(replay, older) if replay else ([], RowCounts())
    filter_name, tab = request.choice("show", SHOWS), request.choice("tab", TABS, "rows" if replay else "preview")
    matching = [row for row in rows if row.is_shown(filter_name)]
    dataset = DatasetSummary(*stored) if stored else None
    page = request.number("page", 1)
    row_count = dataset.row_count if dataset else 0
    listed, size = (row_count, _PREVIEW_SIZE) if tab == "preview" else (len(matching), _PAGE_SIZE)
    shown = matching[(page - 1) * size : page * size] if tab == "rows" else []
    data = DatasetView(
        project_id,
        dataset_id,
        project,
        dataset,
        tab,
        summary_of(replay) if replay else None,
        summary_of(older) if older else None,
        counts,
        filter_name,
        [_shown(service, row) for row in shown],
        len(matching),
        _preview(service, dataset_id, page) if tab == "preview" and dataset else [],
        page,
        max(1, -(-listed // size)),
        [summary_of(one) for one in replays[:_REPLAYS_SHOWN]],
        mounted(request).background.of_dataset(dataset_id),
        replaying.profiles_for(request),
        projects[:_REPLAYS_SHOWN],
        replay_command(request.site, summary_of(replay)) if replay and not dataset else "",
    )
    return View("dataset.html", data)


def _shown(service: ReplayService, row: RowState) -> ShownRow:
    """Read what a row of the table says from the record of its run."""
    record = service.run(row.run_id)
    reason, code = _reason(record)
    missing = sorted({name for segment in record.trace.segments for name in segment.missing_variables})
    changed: list[str] = []
    if row.change == "drift":
        changes = segment_changes(service.run(row.before).trace.segments, record.trace.segments)
        changed = list(dict.fromkeys(change.label for change in changes))
    return ShownRow(row, gist(record), reason, code, missing, changed)


def gist(record: RunRecord) -> str:
    """Return the beginning of what is particular to a row: its user segment, or else the last one."""
    segments = record.trace.segments
    chosen = next((segment for segment in segments if segment.kind == "user"), segments[-1] if segments else None)
    return " ".join(chosen.rendered[: 4 * _LONGEST_GIST].split())[:_LONGEST_GIST] if chosen else ""


def _reason(record: RunRecord) -> tuple[str, str]:
    if record.errors:
        return record.errors[0].message, record.errors[0].error_code
    return answer_failure(record), ""


def answer_failure(record: RunRecord) -> str:
    """Return why the answer of a model is not as expected; empty if it is, or none was asked for."""
    model = record.trace.model
    if model is None or model.status not in UNMET:
        return ""
    failed = next((check for check in model.checks if check.status in UNMET), None)
    return model.error or (f"{failed.name}: {failed.reason}" if failed else model.status)


def _preview(service: ReplayService, dataset_id: str, page: int) -> list[PreviewRow]:
    first = (page - 1) * _PREVIEW_SIZE
    rows = []
    for index, body in enumerate(service.store.rows(dataset_id, first, _PREVIEW_SIZE), first):
        text = msgspec.json.format(body, indent=0).decode("utf-8", "replace")
        rows.append(PreviewRow(index, text[:_LONGEST_ROW], max(0, len(text) - _LONGEST_ROW)))
    return rows


# -- writes ------------------------------------------------------------------------------------------------


def _write(request: PageRequest) -> Redirect:
    service, action = service_of(request), request.field("do")
    project_id = request.field("project") or request.ids["project"]
    dataset_id = check_id(request.ids["dataset"], "dataset")
    if action == "replay":
        return replaying.start(request, check_id(project_id, "project"), dataset_id, replaying.options_of(request))
    if action == "cancel":
        mounted(request).background.cancel(dataset_id)
        return Redirect(request.url(request.path))
    if action == "delete":
        service.delete_dataset(dataset_id, with_runs=request.field("runs") == "on")
        return Redirect(request.url("/replay"))
    raise RequestError("validation_failed", f"do: expected replay, cancel or delete, got {action[:80]!r}")


PAGES = (Page("/replay/{project}/{dataset}", show), Page("/replay/{project}/{dataset}", _write, "POST"))
