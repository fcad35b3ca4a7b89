"""What every reporter of a batch starts from: its facts, its figures, and its runs one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from evalloom.core.model import Case, Record, Run, Scored, Verdict

if TYPE_CHECKING:
    # Deferred: few reports have a comparison.
    from evalloom.analysis.compare import Comparison

ReportRow = tuple[Run, Scored]
BatchState = Literal["finished", "running", "stopped"]


class ComparedWith(msgspec.Struct, frozen=True):
    """What a batch is compared with, and what the comparison gave."""

    name: str
    """The name of a baseline, or the id of a batch; that of the batch itself if its profiles are compared."""
    comparisons: list[Comparison]
    differences: list[str]
    """How the two sides differ otherwise: other models, another dataset."""
    is_regression: bool
    is_comparable: bool
    rows: Iterable[ReportRow] = ()
    """The runs of the other side, in the order of its cases; none for a baseline, which stores no outputs."""
    by_number: bool = False
    """Whether cases of both sides go by their ids of format 1."""
    record: Record = {}
    """The whole comparison, as `compare --json` prints it."""


class RunReport(msgspec.Struct, frozen=True):
    """A batch as reporters see it. `rows` come in the order of the cases and are gone through more than once."""

    batch: Record
    summary: Record
    gates: list[Record]
    rows: Iterable[ReportRow]
    tool: str = "evalloom run"
    problem: str = "unscored"
    """Which unscored runs are not accepted: unscored, nothing_expected, or none if it is empty."""
    language: str = "en"
    state: BatchState = "finished"
    stopped: str = ""
    """Why the batch stopped early, if that is known."""
    compared: ComparedWith | None = None
    case_of: Callable[[Run], Case | None] = lambda run: None
    """Rebuilds the case of a run, with its inputs and checks; None if its record gives none."""
    is_quarantined: Callable[[Run], bool] = lambda run: False
    """Whether the case of a run is in quarantine, so that it does not decide."""
    answer: Record = {}
    """What `--until-sure` decided, as `--json` has it; empty without it."""
    damage: list[str] = []
    """The lines of the log that cannot be read; complete when `rows` were gone through."""
    missing: list[str] = []
    """What else the log lost; complete when `rows` were gone through."""

    def __post_init__(self) -> None:
        # The second time a generator would give nothing, and a report would lack its runs without a word.
        if isinstance(self.rows, Iterator):
            raise TypeError("rows: expected something that can be gone through again, such as a list, got an iterator")


def row(run: Run, scored: Scored) -> Record:
    """One run as a line of JSON: every key is always there."""
    tokens, cost = spent(run, scored)
    return {
        "case_id": run.case_id,
        "profile": run.profile,
        "repeat": run.repeat,
        "outcome": run.outcome,
        "status": scored.status,
        "output": None if run.error else run.output.value,
        "error": run.error or None,
        "first_wrong_step": scored.step or None,
        "verdicts": [verdict_record(verdict) for verdict in scored.verdicts],
        "duration_s": run.duration_s,
        "tokens": tokens,
        "cost": cost,
        "tags": list(run.tags),
        "origin": origin(run),
    }


def verdict_record(verdict: Verdict) -> Record:
    return {
        "name": verdict.name,
        "kind": verdict.kind,
        "where": verdict.where,
        "status": verdict.status,
        "score": verdict.score,
        "reason": verdict.reason,
        "follows": verdict.follows or None,
        "mismatches": [
            {"path": mismatch.path, "expected": mismatch.expected, "actual": mismatch.actual}
            for mismatch in verdict.mismatches
        ],
    }


def spent(run: Run, scored: Scored) -> tuple[int, float]:
    """The tokens and the cost of a run and its scoring together."""
    # 0.1 + 0.2 is 0.30000000000000004, which no reader wants to see as a price.
    return run.usage.tokens + scored.usage.tokens, round(run.usage.cost + scored.usage.cost, 10)


def origin(run: Run) -> str:
    """`cases.jsonl:14`, or only the file where there are no lines."""
    return f"{run.origin.file}:{run.origin.line}" if run.origin.line else run.origin.file


def label(verdict: Verdict) -> str:
    """What a check is called in a report."""
    return verdict.name or verdict.kind


def not_passed(scored: Scored) -> list[Verdict]:
    """The verdicts that explain why a run did not pass, those that decided it first."""
    verdicts = [verdict for verdict in scored.verdicts if verdict.status != "passed"]
    return sorted(verdicts, key=lambda verdict: verdict.status != scored.status)


def reason(verdict: Verdict) -> str:
    """Which check it was, and what it said."""
    follows = f" (follows from step {verdict.follows!r})" if verdict.follows else ""
    return f"{label(verdict)}{follows}: {verdict.reason or verdict.status}"


def is_open(scored: Scored, problem: str) -> bool:
    """Whether a run is unscored and this is not accepted; a run of which nothing is expected only if none has more."""
    return scored.status == "unscored" and problem == ("unscored" if scored.verdicts else "nothing_expected")


def why_without_verdicts(scored: Scored) -> str:
    """Why a run has its status if there is no verdict."""
    return "nothing is expected of it" if scored.status == "unscored" else scored.status


def encode(value: Any) -> bytes:
    """A value as JSON on one line, without NaN."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(value))


def cell(value: Any) -> str:
    """A value as text: a string as it is, anything else as JSON, nothing as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


def _encodable(value: Any) -> Any:
    """The same value with half characters, which UTF-8 cannot hold, spelled out as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value
