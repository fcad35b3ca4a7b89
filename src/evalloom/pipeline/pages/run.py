"""One run of a pipeline: the graph with its times, the step that went wrong, and the case step by step."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from msgspec import Struct, to_builtins

from evalloom.batchlog import find_run
from evalloom.core.model import Record, Run, Scored, Verdict
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View
from evalloom.pipeline.pages.batch import SHOWN, needs_of
from evalloom.pipeline.pages.graph import GraphStep, draw
from evalloom.pipeline.pages.listing import kind_word
from evalloom.ui.language import Language
from evalloom.ui.text import as_text

_LONGEST = 8_000
"""Characters of a value that are shown; more on request."""
_LONGEST_OF_ALL = 1_000_000
_MOST_CALLS = 60
_ORDER = """
    WITH listed AS (
        SELECT key, row_number() OVER (ORDER BY number, repeat) AS place FROM runs WHERE profile = ? AND {condition})
    SELECT place, (SELECT count(*) FROM listed),
        (SELECT key FROM listed AS other WHERE other.place = listed.place - 1),
        (SELECT key FROM listed AS other WHERE other.place = listed.place + 1)
    FROM listed WHERE key = ?
"""


class Text(Struct, frozen=True):
    """A value as text, and how much of it is not shown."""

    text: str
    cut: int = 0


class Call(Struct, frozen=True):
    """A call of a model, or a repair of its answer."""

    type: str
    llm: str
    model: str
    messages: list[tuple[str, Text]]
    """The role and the text of each message."""
    answer: Text
    error: str
    duration_s: float | None
    tokens: int
    item: int | None
    """The number of the batch item that it is for."""


class TracedStep(Struct, frozen=True, kw_only=True):
    """A step of the case."""

    id: str
    kind: str
    needs: list[str]
    status: str
    """`passed`, `failed` (its check failed), `error` or `skipped`."""
    is_first_wrong: bool
    duration_s: float | None
    tokens: int
    inputs: Text
    output: Text
    error: str
    reason: str
    """Why it was skipped."""
    repairs: list[str]
    items: int | None
    failed_items: int
    calls: list[Call]
    calls_left_out: int
    checks: list[Verdict]


class PipelineRunPage(Struct, frozen=True, kw_only=True):
    """The page of one run."""

    batch: str
    run: str
    case: str
    profile: str
    repeat: int
    origin: str
    status: str
    duration_s: float
    error: str
    first_wrong: str
    inputs: Text
    output: Text
    steps: list[TracedStep]
    checks: list[Verdict]
    """All of them; those of a step are there too."""
    previous: str
    next: str
    position: int
    total: int

    def graph(self, t: Language) -> Markup:
        """Return the graph of the case."""
        return draw([_graph_step(step, t) for step in self.steps], self.case)


def _graph_step(step: TracedStep, t: Language) -> GraphStep:
    words = {"passed": "", "failed": t("check failed"), "error": t("error"), "skipped": t("skipped")}[step.status]
    note = t("went wrong first") if step.is_first_wrong else words
    state = "worst" if step.is_first_wrong else {"error": "failed", "passed": ""}.get(step.status, step.status)
    time = t.seconds(step.duration_s) if step.status != "skipped" else ""
    line = " · ".join(filter(None, (kind_word(step.kind, t), time)))
    return GraphStep(step.id, step.needs, line, note, state, ", ".join(filter(None, (step.id, time, note))))


def _show(request: PageRequest) -> View:
    path = request.site.library.path(request.ids["batch"])
    found = find_run(path, request.ids["run"])
    if found is None:
        raise RequestError("run_not_found", f"{path.name} has no run {request.ids['run'][:80]!r}")
    run, scored = found
    limit = _LONGEST_OF_ALL if request.query.get("full") else _LONGEST
    steps = [entry for entry in run.trace if entry.get("type") == "step" and isinstance(entry.get("step"), str)]
    traced = [_traced_step(entry, run, scored, limit) for entry in steps]
    position, total, before, after = _neighbours(request, path.name, run)
    inputs = {name: run.raw[name] for name in ("inputs", "batch_items") if run.raw.get(name)}
    data = PipelineRunPage(
        batch=path.name,
        run=run.key,
        case=run.case_id,
        profile=run.profile,
        repeat=run.repeat,
        origin=str(run.origin),
        status=scored.status,
        duration_s=run.duration_s,
        error=run.error,
        first_wrong=scored.step,
        inputs=_text(inputs.get("inputs") if len(inputs) == 1 and "inputs" in inputs else inputs, limit),
        output=_text(run.output.value, limit),
        steps=traced,
        checks=scored.verdicts,
        previous=before,
        next=after,
        position=position,
        total=total,
    )
    return View("pipeline_run.html", data)


def _traced_step(entry: Record, run: Run, scored: Scored, limit: int) -> TracedStep:
    name, outputs = entry["step"], entry.get("outputs")
    places = [f"steps.{name}", f"steps.{as_text(entry.get('output_key'))}"]
    places += [f"output.{key}" for key in outputs] if isinstance(outputs, list) else []
    checks = [check for check in scored.verdicts if _is_about(check, places)]
    has_failed_check = any(check.status in ("failed", "error") and not check.follows for check in checks)
    status = {"failed": "error", "skipped": "skipped"}.get(as_text(entry.get("status")), "passed")
    if status == "passed" and (has_failed_check or scored.step == name):
        status = "failed"
    calls = [call for call in entry.get("calls") or () if isinstance(call, dict)]
    output = entry["output"] if "output" in entry else run.output.steps.get(name)
    duration = entry.get("duration_s")
    repairs = entry.get("repairs")
    return TracedStep(
        id=name,
        kind=as_text(entry.get("kind")),
        needs=needs_of(entry),
        status=status,
        is_first_wrong=scored.step == name,
        duration_s=duration if isinstance(duration, int | float) else None,
        tokens=_number(entry.get("tokens")),
        inputs=_text({**_object(entry.get("inputs")), **_first_item(entry)}, limit),
        output=_text(output, limit),
        error=as_text(entry.get("error")),
        reason=as_text(entry.get("reason")),
        repairs=[as_text(text) for text in repairs] if isinstance(repairs, list) else [],
        items=entry["items"] if isinstance(entry.get("items"), int) else None,
        failed_items=_number(entry.get("failed_items")),
        calls=[_call(call, limit) for call in calls[:_MOST_CALLS]],
        calls_left_out=max(0, len(calls) - _MOST_CALLS),
        checks=checks,
    )


def _is_about(check: Verdict, places: list[str]) -> bool:
    """Whether a check reads one of these places, or a part of it."""
    return any(check.where == place or check.where.startswith((f"{place}.", f"{place}[")) for place in places)


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {} if value is None else {"": value}


def _first_item(entry: Record) -> Record:
    return {"first_item": entry["first_item"]} if "first_item" in entry else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any, limit: int) -> Text:
    text = as_text(to_builtins(value))
    return Text(text[:limit], max(0, len(text) - limit))


def _call(call: Record, limit: int) -> Call:
    request, response = _object(call.get("request")), _object(call.get("response"))
    usage = _object(response.get("usage"))
    messages = [message for message in request.get("messages") or () if isinstance(message, dict)]
    duration = call.get("duration_s")
    return Call(
        as_text(call.get("type")),
        as_text(call.get("llm")),
        as_text(response.get("model")),
        [(as_text(message.get("role")), _text(message.get("content"), limit)) for message in messages],
        _text(response.get("text") if response else call.get("text"), limit),
        as_text(call.get("error")),
        duration if isinstance(duration, int | float) else None,
        _number(usage.get("input_tokens")) + _number(usage.get("output_tokens")),
        call["item"] if isinstance(call.get("item"), int) else None,
    )


def _neighbours(request: PageRequest, id: str, run: Run) -> tuple[int, int, str, str]:
    """Return the place of a run in the list that it was opened from, its length, and the runs before and after it."""
    shown = request.choice("show", tuple(SHOWN), "failing")
    condition, values = SHOWN[shown], [run.profile]
    if step := request.query.get("step", ""):
        condition, values = f"{condition} AND step = ?", [run.profile, step]
    rows = request.site.library.rows(id, _ORDER.format(condition=condition), [*values, run.key])
    if not rows:
        return 0, 0, "", ""
    place, total, before, after = rows[0]
    return int(place), int(total), before or "", after or ""


PAGES = (Page("/pipeline/b/{batch}/r/{run}", _show),)
