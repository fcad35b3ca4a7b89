"""The trace of an assembled context and the record of a run (REPLAY-6, REPLAY-7). Their JSON has camelCase names."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

from evalloom.core.model import Record

Severity = Literal["info", "warn", "error"]
RunStatus = Literal["succeeded", "failed"]
OUTPUT_STYLE = "labeled"
"""The only style: each segment below a line with its label."""


class Message(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A message about a variable, a segment or a run."""

    severity: Severity
    code: str
    message: str
    details: Record = {}


class Segment(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A node in the assembled context: its template, and the template filled with variables."""

    node_id: str
    label: str
    kind: str
    template: str
    rendered: str
    missing_variables: list[str]
    messages: list[Message]
    truncated: bool = False


class CheckResult(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The result of one expectation of `_expected`."""

    name: str
    status: str
    reason: str = ""


class Answered(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The messages sent to a model, its answer, and the results of the checks (REPLAY-17)."""

    profile: str
    status: str
    """passed, failed, error, or unscored without expectations."""
    messages: list[Record]
    answer: str = ""
    answer_digest: str = ""
    truncated: bool = False
    error: str = ""
    duration_ms: float = 0.0
    usage: Record = {}
    checks: list[CheckResult] = []


class Trace(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """How a context was assembled."""

    run_id: str
    created_at: str
    output_style: str
    text: str
    segments: list[Segment]
    messages: list[Message]
    truncated: bool = False
    model: Answered | None = None


class RunError(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The reason why a run failed, and the variable or node that caused it."""

    message: str
    error_code: str = ""
    variable_id: str = ""
    node_id: str = ""


class Outcome(NamedTuple):
    """The outcome of a run in a stored pack; `check` and `answer` are empty unless a model was called."""

    status: RunStatus
    digest: str
    missing: int
    is_cut: bool = False
    check: str = ""
    answer: str = ""


class RunSummary(Struct, frozen=True, rename="camel", gc=False):
    """A run in a list."""

    run_id: str
    created_at: str
    row_index: int
    status: RunStatus
    output_digest: str
    missing_variables_count: int


class RunRecord(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The complete record of one row of a dataset in a replay."""

    run_id: str
    created_at: str
    project_id: str
    dataset_id: str
    row_index: int
    status: RunStatus
    output_digest: str
    missing_variables_count: int
    trace: Trace
    errors: list[RunError] = []
