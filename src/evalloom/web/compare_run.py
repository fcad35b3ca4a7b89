"""One case of a comparison: both runs side by side, with their outputs, checks and difference."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from evalloom.analysis.compare import Change
from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest, View
from evalloom.ui.diff import TextDiff, compare_texts
from evalloom.ui.json_diff import JsonDiff, compare_json
from evalloom.web.compare_cases import TABS, ChangedCase, Tab
from evalloom.web.compare_sides import Compared, Side

_LONGEST = 1_000_000
"""Characters of an output that are shown; a longer one can be downloaded from the page of its run."""
_CLAMPED, _LONGEST_LINE = 60, 4_000
_RUNS = """
    SELECT key, repeat, status, score, "check", reason, error, latency_s, tokens, cost, model,
        coalesce(length(output::VARCHAR), 0), left(output ->> '$', ?), json_type(output)
    FROM runs WHERE coalesce(profile, '') = ? AND number = ? ORDER BY repeat
"""
_CHECKS = 'SELECT name, kind, "where", status, score, reason FROM verdicts WHERE key = ? ORDER BY number'
_CASE = "SELECT description, input, expected, file, line, tags FROM cases WHERE number = ? AND case_id = ?"


class CheckLine(Struct, frozen=True):
    """The outcome of one check."""

    name: str | None
    kind: str | None
    where: str | None
    status: str | None
    score: float | None
    reason: str | None


class SideRun(Struct, frozen=True):
    """A run of one side."""

    run: str
    repeat: int
    status: str
    score: float | None
    check: str | None
    reason: str | None
    error: str | None
    latency_s: float | None
    tokens: int | None
    cost: float | None
    model: str | None
    size: int
    output: str | None
    is_cut: bool
    checks: list[CheckLine] = []


class Neighbour(Struct, frozen=True):
    """The case before or after in the list."""

    case_id: str
    occurrence: int
    profile: str


class CaseFacts(Struct, frozen=True):
    """What was asked, and what was expected."""

    description: str | None
    input: str | None
    expected: str | None
    file: str | None
    line: int | None
    tags: list[str]


class RunPair(Struct, frozen=True):
    """Both runs of a case."""

    a: Side
    b: Side
    show: Tab
    case_id: str
    occurrence: int
    profile: str
    base_profile: str
    change: Change | None
    facts: CaseFacts | None
    before: SideRun | None
    now: SideRun | None
    repeats_before: list[SideRun]
    """All repeats of the case before, without their outputs; and now."""
    repeats: list[SideRun]
    diff: TextDiff | None
    changes: JsonDiff | None
    """The changes by path, where both outputs are JSON."""
    is_whole: bool
    place: int
    total: int
    previous: Neighbour | None
    next: Neighbour | None


def show_run(request: PageRequest, a: Side, b: Side, compared: Compared, cases: dict[Tab, list[ChangedCase]]) -> View:
    """Show the case that the address names."""
    show, place = _find(request, compared, cases)
    listed = cases[show]
    case = listed[place]
    comparison = compared.result.comparisons[case.comparison]
    befores = _runs(request, a.batch, comparison.base_profile, case.before)
    nows = _runs(request, b.batch, comparison.profile, case.now)
    prefers_passed = show != "gained"
    before = _chosen(request, befores, "ra", prefers_passed)
    now = _chosen(request, nows, "rb", not prefers_passed)
    is_whole = request.query.get("whole") == "1"
    diff, changes = _difference(before, now, is_whole)

    def neighbour(at: int) -> Neighbour | None:
        if not 0 <= at < len(listed):
            return None
        other = listed[at]
        return Neighbour(other.case_id, other.occurrence, compared.result.comparisons[other.comparison].profile)

    data = RunPair(
        a,
        b,
        show,
        case.case_id,
        case.occurrence,
        comparison.profile,
        comparison.base_profile,
        case.change,
        _facts(request, a, b, case),
        _with_checks(request, a.batch, before),
        _with_checks(request, b.batch, now),
        [msgspec.structs.replace(run, output=None) for run in befores],
        [msgspec.structs.replace(run, output=None) for run in nows],
        diff,
        changes,
        is_whole,
        place + 1,
        len(listed),
        neighbour(place - 1),
        neighbour(place + 1),
    )
    return View("compare_run.html", data)


def _find(request: PageRequest, compared: Compared, cases: dict[Tab, list[ChangedCase]]) -> tuple[Tab, int]:
    """Return the list and the place of the case that the address names; that list comes first which it names."""
    id, occurrence, of = request.query["case"], request.number("n", 1), request.query.get("of", "")
    named = request.choice("show", TABS)
    for tab in sorted(TABS, key=lambda tab: tab != named):
        for place, case in enumerate(cases[tab]):
            profile = compared.result.comparisons[case.comparison].profile
            if (case.case_id, case.occurrence) == (id, occurrence) and of in ("", profile):
                return tab, place
    raise RequestError("case_not_found", f"case: this comparison has no case {id[:80]!r} that the filter leaves")


def _runs(request: PageRequest, batch: str, profile: str, number: int | None) -> list[SideRun]:
    if not batch or number is None:
        return []
    runs = []
    for *fields, output, kind in request.site.library.rows(batch, _RUNS, [_LONGEST, profile, number]):
        is_cut = output is not None and len(output) >= _LONGEST
        values: list[Any] = [*fields, _readable(output, kind), is_cut]
        runs.append(SideRun(*values))
    return runs


def _readable(output: str | None, kind: str | None) -> str | None:
    """Return an output as text; an object or array with a line for each value."""
    if output is None or kind not in ("OBJECT", "ARRAY"):
        return output
    try:
        return msgspec.json.format(output.encode(), indent=2).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return output


def _chosen(request: PageRequest, runs: list[SideRun], name: str, prefers_passed: bool) -> SideRun | None:
    """Return the repeat that the address names, or the first that shows the change."""
    if not runs:
        return None
    repeat = request.number(name, 0)
    if repeat:
        return next((run for run in runs if run.repeat == repeat - 1), runs[0])
    return next((run for run in runs if (run.status == "passed") == prefers_passed), runs[0])


def _difference(before: SideRun | None, now: SideRun | None, is_whole: bool) -> tuple[TextDiff | None, JsonDiff | None]:
    if before is None or now is None or before.output is None or now.output is None:
        return None, None
    diff = compare_texts(before.output, now.output)
    changes = compare_json(before.output, now.output)
    return diff if is_whole else diff.clamped(_CLAMPED, _LONGEST_LINE), changes


def _with_checks(request: PageRequest, batch: str, run: SideRun | None) -> SideRun | None:
    if run is None:
        return None
    checks = [CheckLine(*row) for row in request.site.library.rows(batch, _CHECKS, [run.run])]
    return msgspec.structs.replace(run, checks=checks)


def _facts(request: PageRequest, a: Side, b: Side, case: ChangedCase) -> CaseFacts | None:
    for batch, number in ((b.batch, case.now), (a.batch, case.before)):
        rows: list[Any] = []
        if batch and number is not None:
            rows = request.site.library.rows(batch, _CASE, [number, case.case_id])
        for description, inputs, expected, file, line, tags in rows:
            shown = _readable(inputs, "OBJECT"), _readable(expected, "OBJECT")
            return CaseFacts(description, shown[0], shown[1], file, line, tags or [])
    return None
