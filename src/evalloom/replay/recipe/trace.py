"""What is kept of one assembled context: its trace, and the record of a run (REPLAY-6, REPLAY-7).

Names are camelCase where they are written, and only there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

from evalloom.core.model import Record

Severity = Literal["info", "warn", "error"]
RunStatus = Literal["succeeded", "failed"]
OUTPUT_STYLE = "labeled"
"""The one way in which segments become a text: each below a line with its label."""


class Message(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What there is to tell of a variable, a segment or a whole run."""

    severity: Severity
    code: str
    message: str
    details: Record = {}


class Segment(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One node as it was assembled: its template, and what became of it."""

    node_id: str
    label: str
    kind: str
    template: str
    rendered: str
    missing_variables: list[str]
    messages: list[Message]
    truncated: bool = False


class CheckResult(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What one expectation of `_expected` came to."""

    name: str
    status: str
    reason: str = ""


class Answered(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What a model was sent and said, where a replay asks one (REPLAY-17)."""

    profile: str
    status: str
    """What the checks came to: passed, failed, error, or unscored where nothing is expected."""
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
    """Why a run failed, and where."""

    message: str
    error_code: str = ""
    variable_id: str = ""
    node_id: str = ""


class Outcome(NamedTuple):
    """What a run came to, as short as it can be said; `check` and `answer` where a model was asked."""

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
    """One row of a dataset through a recipe: enough by itself to look back at it."""

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
