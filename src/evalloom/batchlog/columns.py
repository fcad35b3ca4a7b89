"""The views of a batch and their columns: each struct declares those of one view, in order, with their types.

Every view has all its columns in every batch.
"""

from __future__ import annotations

from typing import Any, NewType, get_type_hints

from msgspec import Raw, Struct

from evalloom.batchlog.results import ResultRow

Json = Raw | None
"""Any JSON value; None for null, too."""


Time = NewType("Time", str)
"""A time in UTC without its offset, which DuckDB would ignore."""


class BatchRow(Struct, frozen=True, omit_defaults=True):
    """A batch: its request and its state."""

    batch: str
    path: str
    created_at: Time | None = None
    finished_at: Time | None = None
    status: str | None = None
    system: str | None = None
    dialect: str | None = None
    target: str | None = None
    target_digest: str | None = None
    dataset: str | None = None
    dataset_digest: str | None = None
    profiles: list[str] = []
    models: Json = None
    judge: str | None = None
    pass_if: float | None = None
    evalloom: str | None = None
    python: str | None = None
    options: Json = None
    config: Json = None
    params: Json = None
    identity: str | None = None


class CaseRow(Struct, frozen=True, omit_defaults=True):
    """A case of a batch."""

    batch: str
    case_id: str
    number: int | None = None
    description: str | None = None
    tags: list[str] = []
    category: str | None = None
    bucket: str | None = None
    difficulty: str | None = None
    dialect: str | None = None
    file: str | None = None
    line: int | None = None
    input: Json = None
    expected: Json = None
    record: Json = None


class RunRow(Struct, frozen=True, omit_defaults=True):
    """A run of a case. Tokens, cost, calls, cached and retries include those of its judge, as in summaries."""

    batch: str
    key: str
    case_id: str
    number: int | None = None
    profile: str | None = None
    repeat: int | None = None
    status: str | None = None
    passed: bool | None = None
    score: float | None = None
    outcome: str | None = None
    check: str | None = None
    reason: str | None = None
    step: str | None = None
    error: str | None = None
    error_code: str | None = None
    started_at: Time | None = None
    duration_s: float | None = None
    latency_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    cost: float | None = None
    calls: int | None = None
    cached: int | None = None
    retries: int | None = None
    model: str | None = None
    tags: list[str] = []
    category: str | None = None
    bucket: str | None = None
    difficulty: str | None = None
    dialect: str | None = None
    file: str | None = None
    line: int | None = None
    output: Json = None


class VerdictRow(Struct, frozen=True, omit_defaults=True):
    """The outcome of one check of a run."""

    batch: str
    key: str
    case_id: str
    profile: str | None = None
    repeat: int | None = None
    number: int | None = None
    name: str | None = None
    kind: str | None = None
    where: str | None = None
    status: str | None = None
    score: float | None = None
    reason: str | None = None
    weight: float | None = None
    follows: str | None = None
    mismatches: Json = None


class StepRow(Struct, frozen=True, omit_defaults=True):
    """A step of a run: of a pipeline, or of a hoplet."""

    batch: str
    key: str
    case_id: str
    profile: str | None = None
    repeat: int | None = None
    number: int | None = None
    step: str | None = None
    type: str | None = None
    status: str | None = None
    started_s: float | None = None
    duration_s: float | None = None
    tokens: int | None = None
    cost: float | None = None
    retries: int | None = None
    error: str | None = None
    output: Json = None


class CallRow(Struct, frozen=True, omit_defaults=True):
    """A call of an llm by the target."""

    batch: str
    key: str
    case_id: str
    profile: str | None = None
    repeat: int | None = None
    number: int | None = None
    llm: str | None = None
    model: str | None = None
    duration_s: float | None = None
    waited_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    cached: int | None = None
    retries: int | None = None
    stop: str | None = None
    error: str | None = None
    messages: Json = None
    answer: str | None = None


class EventRow(Struct, frozen=True, omit_defaults=True):
    """An event of HOP's observer log."""

    type: str | None = None
    run_id: str | None = None
    op: str | None = None
    status: str | None = None
    duration: float | None = None
    retry_count: int | None = None
    profile: str | None = None
    cached: int | None = None
    event: Json = None


Row = CaseRow | RunRow | VerdictRow | StepRow | CallRow | EventRow | ResultRow
VIEWS: dict[str, type[Row]] = {
    "cases": CaseRow,
    "runs": RunRow,
    "verdicts": VerdictRow,
    "steps": StepRow,
    "llm_calls": CallRow,
    "observer": EventRow,
}
"""The views over rows, each with its columns."""
RESULTS = "results"
TABLES: dict[str, type[Row]] = {**VIEWS, RESULTS: ResultRow}
"""Everything that can be copied."""
_SQL_TYPES: dict[Any, str] = {
    str: "VARCHAR",
    str | None: "VARCHAR",
    int: "BIGINT",
    int | None: "BIGINT",
    float: "DOUBLE",
    float | None: "DOUBLE",
    bool: "BOOLEAN",
    bool | None: "BOOLEAN",
    list[str]: "VARCHAR[]",
    Time | None: "TIMESTAMP",
    Json: "JSON",
}


def columns_of(row: type[Struct]) -> dict[str, str]:
    """Return the columns of a view with their SQL types, in order."""
    return {name: _SQL_TYPES[hint] for name, hint in get_type_hints(row).items()}
