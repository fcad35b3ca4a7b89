"""History: pass rates of one dataset and target over time, what changed in between, and the record of each case."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import date
from pathlib import Path

from msgspec import Struct, structs

from evalloom.analysis.history import HistoryReader
from evalloom.analysis.history_cases import KINDS, Kind
from evalloom.analysis.history_figures import BatchPoint, CaseHistory, History, RunLine
from evalloom.analysis.history_series import LIMIT, SeriesRequest
from evalloom.core.errors import EvalloomError
from evalloom.engine.quarantine_file import Entry, read_entries, today
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary, LogLosses, losses_of, other_warnings
from evalloom.pages.page import Page, PageRequest, View
from evalloom.pages.site import Site
from evalloom.reports.sentences import difference
from evalloom.ui.language import Language

_PAGE_SIZE = 50
_MANY_BATCHES = 40
"""From so many batches on, a page has half as many cases."""
_MOST_BATCHES = 200
_QUARANTINE = "quarantine.yaml"


class SeriesChoice(Struct, frozen=True):
    """A dataset and a target with the number of their batches."""

    suite: str
    """What the address calls it."""
    dataset: str
    target: str
    batches: int
    newest: str


class MatrixCell(Struct, frozen=True):
    """How a case ended in a batch; `run` leads to the run that shows it."""

    status: str
    """`passed`, `failed`, `mixed` or `none`."""
    passed: int
    counted: int
    is_changed: bool
    run: str


class CaseRow(Struct, frozen=True):
    """A case with its record, a cell for each batch."""

    case: CaseHistory
    cells: list[MatrixCell]
    quarantine: str = ""
    """The last day of its quarantine."""


class RecordedRun(Struct, frozen=True):
    """A run of one case."""

    line: RunLine
    run: str


class CaseRecord(Struct, frozen=True):
    """All runs of one case, newest first."""

    case_id: str
    passed: int
    counted: int
    runs: list[RecordedRun]


class Quarantined(Struct, frozen=True):
    """A case that runs, but does not decide."""

    id: str
    file: str
    profile: str
    reason: str
    expires: date
    is_expired: bool


class HistoryPage(Struct, frozen=True):
    """The history of one series."""

    suite: str
    dataset: str
    target: str
    choices: list[SeriesChoice]
    batches: list[BatchPoint]
    profiles: list[str]
    """Those of the batches; the charts and the matrix have a row for each."""
    left_out: int
    limit: int
    counts: dict[Kind, int]
    absent: int
    not_counted: int
    show: Kind
    cases: list[CaseRow]
    page: int
    pages: int
    search: str
    profile: str
    record: CaseRecord | None
    quarantine: list[Quarantined]
    quarantine_file: str
    command: str
    """Adds the flaky cases to the quarantine."""
    problem: str = ""
    losses: list[LogLosses] = []
    """What the logs of its batches lost."""


class _Read(Struct, frozen=True):
    """A history as it is kept between requests."""

    history: History
    runs: dict[tuple[str, str], dict[str, str]]
    """The run that shows how a case ended: by batch and profile, then by the id of the case."""
    warnings: list[str]


def _show(request: PageRequest) -> View:
    series = _series(request)
    choices = [_choice(members) for members in series.values()]
    if not series:
        return View("history.html", _nothing(request))
    suite, members = _chosen(request, series)
    limit = request.number("limit", LIMIT, most=_MOST_BATCHES)
    last = members[:limit]
    profile = request.query.get("profile", "")
    asked = SeriesRequest(profile=profile, limit=limit)
    try:
        read = _read(request, suite, last, asked)
        record = _record(request, last, asked, request.query["case"]) if request.query.get("case") else None
    except EvalloomError as error:
        message = str(error).rpartition(" [")[0]
        return View("history.html", structs.replace(_nothing(request), suite=suite, choices=choices, problem=message))
    return View("history.html", _page(request, suite, members, choices, read, record))


def _nothing(request: PageRequest) -> HistoryPage:
    return HistoryPage("", "", "", [], [], [], 0, LIMIT, {}, 0, 0, "newly_failing", [], 1, 1, "", "", None, [], "", "")


def _in_words(t: Language, batch: BatchPoint) -> BatchPoint:
    """Return a batch with what changed before it in the language of the page."""
    changed = [structs.replace(one, text=difference(t, one.text)) for one in batch.changed]
    return structs.replace(batch, changed=changed)


def _page(
    request: PageRequest,
    suite: str,
    members: list[BatchSummary],
    choices: list[SeriesChoice],
    read: _Read,
    record: CaseRecord | None,
) -> HistoryPage:
    history, search = read.history, request.query.get("q", "").strip()
    entries, file, problem = _quarantine(request)
    counts: dict[Kind, int] = {**dict.fromkeys(KINDS, 0), **Counter(case.kind for case in history.cases)}
    show: Kind = request.choice("show", KINDS) or next((kind for kind in KINDS if counts[kind]), "never_fails")  # type: ignore[assignment]
    text = search.lower()
    cases = [
        case for case in history.of_kind(show) if text in case.case_id.lower() or (text and text in case.name.lower())
    ]
    page, size = request.number("page", 1), _PAGE_SIZE // (2 if len(history.batches) > _MANY_BATCHES else 1)
    shown = cases[(page - 1) * size : page * size]
    profiles = list(dict.fromkeys(point.profile for batch in history.batches for point in batch.profiles))
    return HistoryPage(
        suite,
        history.dataset,
        history.target,
        choices,
        [_in_words(request.t, batch) for batch in history.batches],
        profiles,
        len(members) - len(history.batches),
        request.number("limit", LIMIT, most=_MOST_BATCHES),
        counts,
        history.absent,
        history.not_counted,
        show,
        [_case_row(case, history, read, entries) for case in shown],
        page,
        max(1, -(-len(cases) // size)),
        search,
        request.query.get("profile", ""),
        record,
        [_quarantined(entry) for entry in entries],
        file,
        shlex.join(["evalloom", "history", *_flags(history), "--quarantine", file or _QUARANTINE]),
        problem or "\n".join(other_warnings(read.warnings)),
        _losses(request.site, history, read),
    )


def _losses(site: Site, history: History, read: _Read) -> list[LogLosses]:
    # Only a batch that the reader warned of is opened: there may be hundreds.
    batches = (batch.batch for batch in history.batches)
    return losses_of(site.library, (id for id in batches if any(f"/{id}/" in warning for warning in read.warnings)))


# -- series ------------------------------------------------------------------------------------------------


def _series(request: PageRequest) -> dict[str, list[BatchSummary]]:
    """Return the batches of each dataset and target, newest first, by the name in the address."""
    series: dict[str, list[BatchSummary]] = {}
    for summary in request.site.library.summaries():
        if not summary.is_try:
            series.setdefault(suite_name(summary), []).append(summary)
    return series


def suite_name(summary: BatchSummary) -> str:
    """Return what addresses call the dataset and the target of a batch."""
    return f"{_dataset(summary)} → {summary.target}"


def _dataset(summary: BatchSummary) -> str:
    return ", ".join(dict.fromkeys(summary.datasets))


def _choice(members: list[BatchSummary]) -> SeriesChoice:
    newest = members[0]
    return SeriesChoice(suite_name(newest), _dataset(newest), newest.target, len(members), newest.id)


def _chosen(request: PageRequest, series: dict[str, list[BatchSummary]]) -> tuple[str, list[BatchSummary]]:
    """Return the series that the address names: as a whole, by its dataset or target, or by one of its batches."""
    if batch := request.query.get("batch", ""):
        wanted = suite_name(request.site.library.summary(batch))
        if wanted in series:
            return wanted, series[wanted]
    name = request.query.get("suite", "")
    for suite, members in series.items():
        if name in ("", suite, _dataset(members[0]), members[0].target):
            return suite, members
    raise RequestError("suite_not_found", f"suite: there is no batch of {name[:200]!r}. /history lists what there is")


def _read(request: PageRequest, suite: str, last: list[BatchSummary], asked: SeriesRequest) -> _Read:
    site, ids = request.site, [summary.id for summary in last]

    def read() -> _Read:
        warnings: list[str] = []
        with HistoryReader(_paths(site, ids), asked, site.catalog, warnings.append) as reader:
            return _Read(reader.history(), reader.run_keys(), warnings)

    # A new batch of the series changes the list of ids.
    return site.memo.get(("history", suite, asked.profile, asked.limit), ids, read, lambda: tuple(ids))


def _paths(site: Site, ids: list[str]) -> list[Path]:
    return [site.library.path(id) for id in reversed(ids)]


# -- cases, and one case -------------------------------------------------------------------------------------


def _case_row(case: CaseHistory, history: History, read: _Read, entries: list[Entry]) -> CaseRow:
    marks = {mark.batch: mark for mark in case.record}
    cells = []
    for at, batch in enumerate(history.batches):
        mark = marks.get(at)
        if mark is None:
            cells.append(MatrixCell("none", 0, 0, False, ""))
            continue
        is_mixed = 0 < mark.passed < mark.counted
        status = "none" if not mark.counted else "mixed" if is_mixed else "passed" if mark.passed else "failed"
        run = read.runs.get((batch.batch, case.profile), {}).get(case.case_id, "")
        cells.append(MatrixCell(status, mark.passed, mark.counted, mark.is_changed, run))
    until = [
        entry.expires
        for entry in entries
        if entry.id == case.case_id and entry.profile in ("", case.profile) and entry.expires >= today()
    ]
    return CaseRow(case, cells, max(until).isoformat() if until else "")


def _record(request: PageRequest, last: list[BatchSummary], asked: SeriesRequest, case_id: str) -> CaseRecord:
    """Return all runs of one case."""
    ids = [summary.id for summary in last]
    warnings: list[str] = []
    with HistoryReader(_paths(request.site, ids), asked, request.site.catalog, warnings.append) as reader:
        try:
            lines = reader.runs_of(case_id)
        except EvalloomError as error:
            raise RequestError("case_not_found", str(error).rpartition(" [")[0]) from None
        keys = reader.run_keys_of(case_id)
    runs = [RecordedRun(line, keys.get((line.batch, line.profile, line.repeat), "")) for line in lines]
    passed = sum(line.status == "passed" for line in lines)
    counted = sum(line.status in ("passed", "failed", "error") for line in lines)
    return CaseRecord(case_id, passed, counted, runs[::-1])


def _flags(history: History) -> list[str]:
    flags = ["--dataset", history.dataset] if history.dataset else []
    return [*flags, "--target", history.target] if history.target else flags


# -- quarantine ----------------------------------------------------------------------------------------------


def _quarantine(request: PageRequest) -> tuple[list[Entry], str, str]:
    """Return the quarantined cases of the project, the file that lists them, and what is wrong in it."""
    home, settings = request.site.home.resolve(), request.site.settings
    name = settings.run.quarantine or _QUARANTINE
    file = ((settings.folder if settings.run.quarantine else home) / name).resolve()
    if not file.is_relative_to(home) or not file.is_file():
        return [], "", ""
    try:
        return read_entries(file), name, ""
    except EvalloomError as error:
        return [], name, str(error).rpartition(" [")[0]


def _quarantined(entry: Entry) -> Quarantined:
    return Quarantined(entry.id, entry.file, entry.profile, entry.reason, entry.expires, entry.expires < today())


PAGES = (Page("/history", _show),)
