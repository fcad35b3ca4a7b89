"""One run on one screen: its checks, what was expected and what came out, its steps, and the same case elsewhere."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from shlex import join
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from evalloom.batchlog.copy import FOLDER_NAME
from evalloom.core.model import Batch
from evalloom.core.repeats import COUNTED
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary, Library
from evalloom.pages.page import Page, PageRequest, View
from evalloom.ui.language import Language
from evalloom.ui.markdown import code
from evalloom.ui.text import visible
from evalloom.web.batch import SystemPage, again_words, only_cases, system_page
from evalloom.web.batch_figures import batch_figures
from evalloom.web.run_content import (
    LARGEST,
    Call,
    CheckResult,
    Comparison,
    Step,
    Text,
    compare,
    cut,
    decode,
    fields,
    read_calls,
    read_checks,
    read_steps,
)
from evalloom.web.run_list import RunFilter, RunList, parse_filter

_EARLIER = 8
"""Other batches of the same suite whose runs of the case are shown."""
_MOST_BUILT = 100_000
"""Runs of a batch whose copy is built only to show one of its runs."""
_COPIED = 20_000
_RUN = """
    SELECT key, case_id, number, profile, repeat, status, score, outcome, "check", reason, step, error, started_at,
        duration_s, latency_s, input_tokens, output_tokens, cost, calls, cached, retries, model, tags, category, bucket,
        difficulty, file, line, strlen(output::VARCHAR),
        CASE WHEN strlen(output::VARCHAR) > ? THEN to_json(left(output ->> '$', 4000)) ELSE output END
    FROM runs WHERE key = ?"""
_CASE = "SELECT description, input, expected, record FROM cases WHERE number = ? AND case_id = ? LIMIT 1"
_SAME_CASE = """SELECT key, profile, repeat, status, latency_s FROM runs WHERE number = ? AND case_id = ?
    ORDER BY profile, repeat LIMIT 200"""
_ELSEWHERE = "SELECT key, status FROM runs WHERE case_id = ? AND profile = ? ORDER BY number, repeat LIMIT 50"
_FENCE = re.compile(r"`{3,}")


class CaseRecord(Struct, frozen=True):
    """The case of a run."""

    description: str
    inputs: Any
    expected: Any
    record: str
    """As it was read, on one line of JSON."""


class Facts(Struct, frozen=True, kw_only=True):
    """A run: which one it is, how it ended, and what it took."""

    run: str
    case: str
    number: int
    profile: str
    repeat: int
    status: str
    score: float | None
    outcome: str
    check: str
    reason: str
    step: str
    error: str
    started: str
    duration: float | None
    latency: float | None
    input_tokens: int
    output_tokens: int
    cost: float
    calls: int
    cached: int
    retries: int
    model: str
    tags: list[str]
    category: str
    bucket: str
    difficulty: str
    file: str
    line: int
    output_size: int
    """Bytes of the output as JSON."""


class SameCase(Struct, frozen=True):
    """Another run of the same case in the same batch."""

    run: str
    profile: str
    repeat: int
    status: str
    latency: float | None


class Elsewhere(Struct, frozen=True):
    """The runs of the case in a batch of the same suite, oldest batch first; one of them is this batch."""

    batch: str
    created_at: str
    runs: list[tuple[str, str]]
    """The key and the status of each."""
    is_here: bool


class Place(Struct, frozen=True):
    """Where the run is in the list that one came from."""

    at: int
    total: int
    previous: str
    next: str
    """Keys of runs; empty at the ends."""


class Copies(Struct, frozen=True):
    """Texts to copy."""

    output: str
    """Empty if it is too long: then there is the download."""
    case: str
    command: str
    issue: str


class RunView(Struct, frozen=True):
    """The page of a run."""

    batch: BatchSummary
    facts: Facts
    description: str
    checks: list[CheckResult]
    inputs: list[Text]
    expected: list[Text]
    output: Text | None
    comparison: Comparison | None
    steps: list[Step]
    calls: list[Call]
    same_case: list[SameCase]
    earlier: list[Elsewhere]
    record: str
    """What the earlier runs show: `flaky`, or empty."""
    passed: int
    counted: int
    """How many of the runs in `earlier` passed, of those that count."""
    filter: RunFilter
    place: Place | None
    system_page: SystemPage | None
    copies: Copies
    is_full: bool
    shown_file: str
    """The file of the case as pages name it; empty if it is not below this folder."""


def _show(request: PageRequest) -> View:
    library = request.site.library
    id = library.path(request.ids["batch"]).name
    is_full = request.query.get("full") == "1"
    facts, output = _read(library, id, request.ids["run"])
    case = _read_case(library, id, facts)
    checks = read_checks(library, id, facts.run)
    comparison, at = compare(checks, case.expected, output) if facts.output_size <= LARGEST else (None, 0)
    if comparison is not None and comparison.text is not None and not is_full:
        comparison = replace(comparison, text=comparison.text.clamped())
    summary, batch = library.summary(id), library.manifest(id)
    earlier = _elsewhere(library, summary, facts)
    statuses = [status for there in earlier for _, status in there.runs if status in COUNTED]
    shown = None if output is None else cut("", output, is_full, at)
    filter = parse_filter(request)
    data = RunView(
        summary,
        facts,
        case.description,
        checks,
        fields(case.inputs, is_full),
        fields(case.expected, is_full, {comparison.check: at} if comparison else {}),
        shown,
        comparison,
        read_steps(library, id, facts.run, facts.step, is_full),
        read_calls(library, id, facts.run, is_full),
        [SameCase(*row) for row in library.rows(id, _SAME_CASE, [facts.number, facts.case])],
        earlier,
        "flaky" if _is_flaky(earlier) else "",
        statuses.count("passed"),
        len(statuses),
        filter,
        _place(request, id, filter, facts.run),
        system_page(request, batch, id, facts.run),
        _copies(request.t, batch, facts, case, output, checks),
        is_full,
        request.site.files.shown_name(facts.file) if facts.file else "",
    )
    return View("run.html", data)


def _read(library: Library, batch: str, run: str) -> tuple[Facts, Any]:
    """Return a run and its output."""
    rows = library.rows(batch, _RUN, [LARGEST, run])
    if not rows:
        raise RequestError("run_not_found", f"there is no run {run[:80]!r} in the batch {batch!r}")
    (key, case, number, profile, repeat, status, score, outcome, check, reason, step, error, started, duration, latency,
        input_tokens, output_tokens, cost, calls, cached, retries, model, tags, category, bucket, difficulty, file,
        line, size, output) = rows[0]  # fmt: skip
    facts = Facts(
        run=key, case=case, number=number or 0, profile=profile or "", repeat=repeat or 0, status=status or "",
        score=score, outcome=outcome or "", check=check or "", reason=reason or "", step=step or "", error=error or "",
        started=f"{started.isoformat()}+00:00" if started else "", duration=duration, latency=latency,
        input_tokens=input_tokens or 0, output_tokens=output_tokens or 0, cost=cost or 0.0, calls=calls or 0,
        cached=cached or 0, retries=retries or 0, model=model or "", tags=tags or [], category=category or "",
        bucket=bucket or "", difficulty=difficulty or "", file=file or "", line=line or 0, output_size=size or 0,
    )  # fmt: skip
    return facts, decode(output)


def _read_case(library: Library, batch: str, facts: Facts) -> CaseRecord:
    """Return the case of a run."""
    rows = library.rows(batch, _CASE, [facts.number, facts.case])
    if not rows:
        return CaseRecord("", None, None, "")
    [(description, inputs, expected, record)] = rows
    # What is no input, such as the items of a batch step, is in the record alone.
    return CaseRecord(description or "", decode(inputs) or decode(record), decode(expected), record or "")


def _place(request: PageRequest, batch: str, filter: RunFilter, run: str) -> Place | None:
    """Return the neighbours of a run in the list that the address describes; None if it is not in it."""
    library = request.site.library
    runs = RunList(library, batch, filter, batch_figures(library, batch).has_repeats)
    at = request.number("at", 0, least=0, most=1_000_000_000)
    keys = runs.keys(max(0, at - 2), 3 if at > 1 else 2) if at else []
    if not at or keys[(1 if at > 1 else 0) :][:1] != [run]:
        # The address was written by hand, or the batch has grown: find it. Another repeat has the place of its case.
        found = runs.place_of(run)
        if found is None:
            return None
        at = found + 1
        keys = runs.keys(max(0, at - 2), 3 if at > 1 else 2)
    before, after = (keys[0] if at > 1 else ""), (keys[2:] if at > 1 else keys[1:])
    return Place(at, runs.counts()[1], before, after[0] if after else "")


# -- the same case in other batches --------------------------------------------------------------------------


def _elsewhere(library: Library, summary: BatchSummary, facts: Facts) -> list[Elsewhere]:
    """Return the runs of a case in the newest batches of the same suite, and in this one."""
    suite = [
        other
        for other in library.summaries()
        if (other.target, other.datasets) == (summary.target, summary.datasets) and other.state != "running"
    ]
    others = [other for other in suite if other.id != summary.id and _is_quick(library, other)][:_EARLIER]
    found = []
    for batch in sorted([summary, *others], key=lambda other: (other.created_at, other.id)):
        try:
            rows = library.rows(batch.id, _ELSEWHERE, [facts.case, facts.profile])
        except RequestError:  # one that cannot be read says nothing about this run
            continue
        if rows:
            found.append(Elsewhere(batch.id, batch.created_at, rows, batch.id == summary.id))
    return found


def _is_quick(library: Library, batch: BatchSummary) -> bool:
    """Whether a batch is small, or its copy is there already."""
    total = batch.summary.get("total", 0)
    return total <= _MOST_BUILT or (library.folder / batch.id / FOLDER_NAME / "index.json").exists()


def _is_flaky(batches: list[Elsewhere]) -> bool:
    """Whether a case passes and fails back and forth; one that turned once is not flaky."""
    shares = [[status == "passed" for _, status in batch.runs if status in COUNTED] for batch in batches]
    counted = [share for share in shares if share]
    if any(len(set(share)) > 1 for share in counted):
        return True
    outcomes = [share[0] for share in counted]
    return sum(now != then for then, now in pairwise(outcomes)) > 1


# -- texts to copy -------------------------------------------------------------------------------------------


def _copies(
    t: Language, batch: Batch, facts: Facts, case: CaseRecord, output: Any, checks: list[CheckResult]
) -> Copies:
    text = "" if output is None else output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    words = again_words(batch)
    command = join(["evalloom", *words, "--filter", only_cases([facts.case])]) if words else ""
    lines = [
        f"**{t('Case')}** {code(facts.case)}  {code(facts.profile)}  {facts.status}",
        *([f"{t('Place')}: {code(f'{facts.file}:{facts.line}')}"] if facts.file else []),
        f"{t('Batch')}: {code(batch.id)}",
        *(f"- {check.status} {code(check.name)}: {code(check.reason, 1_000)}" for check in checks[:20]),
        *([f"{t('Error')}: {code(facts.error, 1_000)}"] if facts.error else []),
        *_fenced(t("Input"), case.inputs),
        *_fenced(t("Expected"), case.expected),
        *_fenced(t("Actual"), output),
        *([f"{t('Command')}: {code(command, 1_000)}"] if command else []),
    ]
    return Copies(
        text if len(text) <= _COPIED and facts.output_size <= LARGEST else "",
        case.record if len(case.record) <= _COPIED else "",
        command,
        "\n\n".join(lines),
    )


def _fenced(title: str, value: Any) -> list[str]:
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    text = visible(text[:4_000])
    fence = max([*_FENCE.findall(text), "``"], key=len) + "`"
    return [f"{title}:\n{fence}\n{text}\n{fence}"]


def _download(request: PageRequest) -> Response:
    """Return the whole output of a run: a text as it is, anything else as JSON."""
    library = request.site.library
    rows = library.rows(request.ids["batch"], "SELECT output FROM runs WHERE key = ?", [request.ids["run"]])
    if not rows or rows[0][0] is None:
        raise RequestError("run_not_found", "this run has no output")
    value = decode(rows[0][0])
    name, kind = ("output.txt", "text/plain") if isinstance(value, str) else ("output.json", "application/json")
    text = value if isinstance(value, str) else rows[0][0]
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Response(text.encode("utf-8", "backslashreplace"), 200, headers, f"{kind}; charset=utf-8")


PAGES = (
    Page("/b/{batch}/r/{run}", _show),
    Page("/b/{batch}/r/{run}/output", _download, has_twin=False),
)
