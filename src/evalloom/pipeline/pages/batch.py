"""A batch of a pipeline: the graph of its steps with times and failures, and the failing cases by step."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from msgspec import Struct

from evalloom.batchlog import find_run
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View
from evalloom.pipeline.pages.graph import GraphStep, draw
from evalloom.pipeline.pages.listing import kind_word
from evalloom.ui.language import Language

_PAGE_SIZE = 50
_TRACES = 5
"""Runs with most steps whose traces give the graph: one that failed early has only its first steps."""
_STEPS = """
    SELECT step, any_value(type), count(*), count(*) FILTER (status = 'failed'), count(*) FILTER (status = 'skipped'),
        avg(duration_s) FILTER (status <> 'skipped'), quantile_cont(duration_s, 0.95) FILTER (status <> 'skipped'),
        coalesce(sum(tokens), 0), coalesce(sum(cost), 0)
    FROM steps WHERE profile = ? AND step IS NOT NULL GROUP BY step ORDER BY min(number)
"""
_WRONG = "SELECT step, count(*) FROM runs WHERE profile = ? AND step IS NOT NULL GROUP BY step"
_LONGEST = "SELECT key FROM steps WHERE profile = ? GROUP BY key ORDER BY count(*) DESC, min(key) LIMIT ?"
_STATUSES = "SELECT status, count(*) FROM runs WHERE profile = ? GROUP BY status"
_FAILING = """
    SELECT key, case_id, repeat, status, coalesce(step, ''), coalesce("check", ''), coalesce(reason, ''), duration_s
    FROM runs WHERE profile = ? AND {condition} ORDER BY number, repeat LIMIT ? OFFSET ?
"""
SHOWN = {"failing": "status IN ('failed', 'error')", "all": "true"}


class StepFigures(Struct, frozen=True):
    """A step over all runs of a profile."""

    id: str
    kind: str
    needs: list[str]
    runs: int
    failed: int
    """How often it ended in an error."""
    skipped: int
    first_wrong: int
    """In how many failing runs it is the first step that went wrong: it failed, or its check did."""
    mean_s: float | None
    p95_s: float | None
    tokens: int
    cost: float
    is_worst: bool = False


class PipelineRun(Struct, frozen=True):
    """A run in the list."""

    run: str
    case: str
    repeat: int
    status: str
    step: str
    check: str
    reason: str
    duration_s: float | None


class PipelineBatch(Struct, frozen=True, kw_only=True):
    """The page of one profile of a batch."""

    batch: str
    target: str
    created_at: str
    profile: str
    profiles: list[str]
    summary: dict[str, Any]
    statuses: dict[str, int]
    steps: list[StepFigures]
    worst: str
    """The step that is most often the first to go wrong; empty if none is."""
    runs: list[PipelineRun]
    shown: str
    step: str
    total: int
    page: int
    pages: int

    def graph(self, t: Language) -> Markup:
        """Return the graph of the steps with times and failures."""
        return draw([_graph_step(step, t) for step in self.steps], t("Steps"))


def _graph_step(step: StepFigures, t: Language) -> GraphStep:
    time = t("{time} on average", time=t.seconds(step.mean_s)) if step.mean_s is not None else t("skipped")
    wrong = t.count(step.first_wrong, "{n} failure", "{n} failures") if step.first_wrong else ""
    skipped = t.count(step.skipped, "{n} skipped", "{n} skipped") if step.skipped else ""
    note = " · ".join(filter(None, (wrong, skipped)))
    state = "worst" if step.is_worst else "failed" if step.first_wrong else "skipped" if step.mean_s is None else ""
    words = ", ".join(filter(None, (step.id, time, note, t("fails most") if step.is_worst else "")))
    return GraphStep(step.id, step.needs, f"{kind_word(step.kind, t)} · {t.seconds(step.mean_s)}", note, state, words)


def pipeline_profile(request: PageRequest, id: str) -> tuple[str, list[str]]:
    """Return the chosen profile of a batch, or else the first, and all of them."""
    found = [str(row[0]) for row in request.site.library.rows(id, "SELECT DISTINCT profile FROM steps")]
    names = [profile.name for profile in request.site.library.manifest(id).profiles if profile.name in found]
    names += [name for name in found if name not in names]
    if not names:
        message = f"{id}: has no run with steps. 'evalloom run --target pipeline:FILE.yaml' makes one"
        raise RequestError("steps_not_found", message)
    profile = request.query.get("profile") or names[0]
    if profile not in names:
        message = f"profile: expected one of {', '.join(map(repr, names))}, got {profile[:80]!r}"
        raise RequestError("validation_failed", message)
    return profile, names


def _show(request: PageRequest) -> View:
    library = request.site.library
    path = library.path(request.ids["batch"])
    summary = library.summary(path.name)
    profile, profiles = pipeline_profile(request, path.name)
    steps = _step_figures(request, path.name, profile)
    statuses = {str(status): int(number) for status, number in library.rows(path.name, _STATUSES, [profile])}
    failing = statuses.get("failed", 0) + statuses.get("error", 0)
    shown = request.choice("show", tuple(SHOWN), "failing" if failing else "all")
    step, page = request.query.get("step", ""), request.number("page", 1)
    condition, values = SHOWN[shown], [profile]
    if step:
        condition, values = f"{condition} AND step = ?", [profile, step]
    counted = library.rows(path.name, f"SELECT count(*) FROM runs WHERE profile = ? AND {condition}", values)
    total = int(counted[0][0])
    query = _FAILING.format(condition=condition)
    rows = library.rows(path.name, query, [*values, _PAGE_SIZE, (page - 1) * _PAGE_SIZE])
    data = PipelineBatch(
        batch=path.name,
        target=summary.target,
        created_at=summary.created_at,
        profile=profile,
        profiles=profiles,
        summary=summary.summary.get("profiles", {}).get(profile, summary.summary),
        statuses=statuses,
        steps=steps,
        worst=next((one.id for one in steps if one.is_worst), ""),
        runs=[PipelineRun(*row) for row in rows],
        shown=shown,
        step=step,
        total=total,
        page=page,
        pages=max(1, -(-total // _PAGE_SIZE)),
    )
    return View("pipeline_batch.html", data)


def _step_figures(request: PageRequest, id: str, profile: str) -> list[StepFigures]:
    library = request.site.library
    wrong = {str(step): int(number) for step, number in library.rows(id, _WRONG, [profile])}
    most = max(wrong.values(), default=0)
    needs = _needs(request, id, profile)
    return [
        StepFigures(
            step,
            kind or "",
            needs.get(step, []),
            runs,
            failed,
            skipped,
            wrong.get(step, 0),
            mean,
            p95,
            int(tokens),
            float(cost),
            bool(most) and wrong.get(step, 0) == most,
        )
        for step, kind, runs, failed, skipped, mean, p95, tokens, cost in library.rows(id, _STEPS, [profile])
    ]


def _needs(request: PageRequest, id: str, profile: str) -> dict[str, list[str]]:
    """Return the steps that each step needs, as traces of the batch have them: the file may have changed since."""
    needs: dict[str, list[str]] = {}
    path = request.site.library.path(id)
    for (key,) in request.site.library.rows(id, _LONGEST, [profile, _TRACES]):
        found = find_run(path, key)
        for entry in found[0].trace if found else ():
            if entry.get("type") == "step" and isinstance(entry.get("step"), str):
                needs.setdefault(entry["step"], needs_of(entry))
    return needs


def needs_of(entry: dict[str, Any]) -> list[str]:
    """Return the steps that a step of a trace needs."""
    written = entry.get("needs")
    return [need for need in written if isinstance(need, str)] if isinstance(written, list) else []


PAGES = (Page("/pipeline/b/{batch}", _show),)
