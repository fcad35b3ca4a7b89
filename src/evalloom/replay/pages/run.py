"""`/replay/run/{run}`: the trace of one run, with templates beside what they became."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View
from evalloom.replay.pages import dataset, history
from evalloom.replay.pages.mounted import mounted, service_of
from evalloom.replay.pages.suggestions import SUGGESTIONS
from evalloom.replay.pages.trace_parts import FilledPart, filled_parts, value_sizes
from evalloom.replay.recipe.assemble import TemplatePart, template_parts
from evalloom.replay.recipe.trace import Message, RunError, RunRecord, RunSummary, Segment
from evalloom.replay.requests import not_found
from evalloom.replay.service import ReplayService, ReplaySummary, summary_of
from evalloom.replay.store.records import RunFilter

_EARLIER_SHOWN = 20


class SegmentView(Struct, frozen=True):
    """A segment: the template split at its placeholders, and the text split at what filled them."""

    segment: Segment
    template: list[TemplatePart]
    rendered: list[FilledPart]
    unfilled: list[str]
    """Names that have no value here: missing ones, and dynamic ones that could not be resolved."""
    size: int
    """Characters of the rendered text."""


class VariableView(Struct, frozen=True):
    """What a message tells of one variable."""

    id: str
    name: str
    type: str
    severity: str
    code: str
    message: str
    duration_ms: float
    size: int
    is_truncated: bool
    is_used: bool


class FirstFailure(Struct, frozen=True):
    """Where the run failed first, in the order of assembly."""

    error: RunError
    segment: int
    """The number of the segment from 1; 0 if the error is of no segment."""
    label: str
    more: int
    """Further errors."""


class OtherRun(Struct, frozen=True):
    """Another run of the same row."""

    run: RunSummary
    is_stable: bool
    """Whether it has the same digest and status."""


class RunView(Struct, frozen=True):
    """The page of a run."""

    record: RunRecord
    project_name: str
    dataset_name: str
    replay: ReplaySummary
    segments: list[SegmentView]
    variables: list[VariableView]
    messages: list[Message]
    """Those that are not about a variable with a value."""
    failure: FirstFailure | None
    answer_failure: str
    """Why the answer of the model is not as expected; empty if it is, or none was asked for."""
    suggestions: dict[str, str]
    """By code, for the codes of this run."""
    other_runs: list[OtherRun]
    before: str
    """The run of this row in the replay before, to compare with."""
    show: str
    position: int
    """The place of the run in the list that the filter leaves, from 1; 0 if it is not in it."""
    total: int
    previous: str
    next: str
    can_edit: bool


def _show(request: PageRequest) -> View:
    service, id = service_of(request), request.ids["run"]
    try:
        record = service.run(id)
    except RequestError:
        # A project that `evalloom replay` read from run.json has the id `run`.
        if history.replays_of(service, "run", id):
            return dataset.show(replace(request, ids={"project": "run", "dataset": id}))
        raise
    return View("run.html", _view(request, record, request.choice("show", history.SHOWS)))


def _view(request: PageRequest, record: RunRecord, filter_name: str) -> RunView:
    service = service_of(request)
    replay = service.store.replay(record.run_id.rpartition("-")[0])
    if replay is None:
        raise not_found("run", record.run_id)
    older = history.before(service, replay)
    in_older = service.store.run(older.replay.id, record.row_index) if older else None
    rows, _ = mounted(request).history.of(replay, older)
    runs = [row.run_id for row in rows if row.is_shown(filter_name)]
    position = runs.index(record.run_id) if record.run_id in runs else -1
    stored_project, stored_dataset = service.store.project(record.project_id), service.store.dataset(record.dataset_id)
    messages, variables = _split(record)
    codes = {message.code for message in record.trace.messages} | {error.error_code for error in record.errors}
    return RunView(
        record,
        stored_project.name if stored_project else "",
        stored_dataset.name if stored_dataset else "",
        summary_of(replay),
        _segments(record),
        variables,
        messages,
        _first_failure(record),
        dataset.answer_failure(record),
        {code: SUGGESTIONS[code] for code in sorted(codes & SUGGESTIONS.keys())},
        _other_runs(service, record),
        in_older.run_id if in_older else "",
        filter_name,
        position + 1,
        len(runs),
        runs[position - 1] if position > 0 else "",
        runs[position + 1] if 0 <= position < len(runs) - 1 else "",
        stored_project is not None,
    )


def _segments(record: RunRecord) -> list[SegmentView]:
    sizes = value_sizes(record.trace)
    segments = []
    for segment in record.trace.segments:
        template, rendered = template_parts(segment.template), filled_parts(segment, sizes)
        unfilled = sorted({part.name for part in rendered if part.kind == "missing"} | {*segment.missing_variables})
        segments.append(SegmentView(segment, template, rendered, unfilled, len(segment.rendered)))
    return segments


def _split(record: RunRecord) -> tuple[list[Message], list[VariableView]]:
    """Divide the messages into those about a variable with its type and size, and the others."""
    used = {part.name for segment in record.trace.segments for part in template_parts(segment.template)}
    variables, others = [], []
    for message in record.trace.messages:
        details: Any = message.details
        if "valueBytes" not in details:
            others.append(message)
            continue
        variables.append(
            VariableView(
                str(details.get("variableId", "")),
                str(details.get("variableName", "")),
                str(details.get("type", "")),
                message.severity,
                message.code,
                message.message,
                float(details.get("durationMs", 0.0)),
                int(details["valueBytes"]),
                bool(details.get("truncated")),
                details.get("variableName") in used,
            )
        )
    # What went wrong first, then what a template uses.
    ranks = {"error": 0, "warn": 1}
    return others, sorted(variables, key=lambda one: (ranks.get(one.severity, 2), not one.is_used))


def _first_failure(record: RunRecord) -> FirstFailure | None:
    if not record.errors:
        return None
    places = {segment.node_id: at for at, segment in enumerate(record.trace.segments, 1)}
    first = min(record.errors, key=lambda error: places.get(error.node_id, 0))
    place = places.get(first.node_id, 0)
    label = record.trace.segments[place - 1].label if place else ""
    distinct = {(error.error_code, error.message) for error in record.errors}
    return FirstFailure(first, place, label, len(distinct) - 1)


def _other_runs(service: ReplayService, record: RunRecord) -> list[OtherRun]:
    runs = service.store.runs(RunFilter(record.dataset_id, record.row_index), _EARLIER_SHOWN, 0)
    return [
        OtherRun(run, (run.output_digest, run.status) == (record.output_digest, record.status))
        for run in runs
        if run.run_id != record.run_id
    ]


PAGES = (Page("/replay/run/{run}", _show),)
