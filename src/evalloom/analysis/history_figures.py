"""The figures of a history: its batches and its cases."""

from __future__ import annotations

from msgspec import Struct

from evalloom.analysis.compare_figures import RateComparison
from evalloom.analysis.history_cases import FlakeRate, Kind
from evalloom.analysis.history_series import Series


class Changed(Struct, frozen=True):
    """One difference from the batch before: a word for it, and a sentence."""

    what: str
    text: str


class ProfilePoint(Struct, frozen=True):
    """The results of one profile in one batch."""

    profile: str
    runs: int
    cases: int
    """How many cases `pass_rate` is over."""
    pass_rate: float | None
    low: float | None
    high: float | None
    change: RateComparison | None = None
    """The difference to the batch before, over the cases of both; None if they are not compared."""


class BatchPoint(Struct, frozen=True):
    """A batch of a history."""

    batch: str
    path: str
    created_at: str
    status: str
    profiles: list[ProfilePoint]
    changed: list[Changed] = []
    """What differs from the batch before."""
    is_partial: bool = False
    """Whether its own results decided which cases it ran, so that a usual interval is too narrow."""


class BatchMark(Struct, frozen=True):
    """How a case ended in a batch: how many of its runs passed, of how many that count."""

    batch: int
    passed: int
    counted: int
    runs: int
    is_changed: bool
    """Whether the case, its expectations, the target or the llms differ from the case's batch before."""


class CaseHistory(Struct, frozen=True):
    """The record of a case under one profile."""

    case_id: str
    profile: str
    name: str
    """Its id; its description or place if it has none."""
    file: str
    line: int | None
    kind: Kind
    passed: int
    counted: int
    record: list[BatchMark]
    since: str = ""
    """The batch since which it is newly failing or fixed, or turned."""
    is_after_change: bool = False
    direction: str = ""
    chance: float | None = None
    flake_rate: FlakeRate | None = None
    passes_in_a_row: int = 0
    """The last batches in which all its runs passed."""


class History(Struct, frozen=True):
    """The batches of one dataset and target, oldest first, and the record of each case that the newest one has."""

    dataset: str
    target: str
    batches: list[BatchPoint]
    cases: list[CaseHistory]
    absent: int
    """The cases that only earlier batches have."""
    not_counted: int
    """The cases without any run that passed, failed or met an error."""
    others: list[Series]
    """Other datasets and targets that were run."""
    left_out: int
    """The earlier batches of the same dataset and target, beyond the limit."""
    warnings: list[str] = []
    """What cannot be read in the logs of these batches, and what is missing there."""

    def of_kind(self, *kinds: Kind) -> list[CaseHistory]:
        return [case for case in self.cases if case.kind in kinds]


class RunLine(Struct, frozen=True):
    """One run of a case."""

    batch: str
    started_at: str
    profile: str
    repeat: int
    status: str
    score: float | None
    reason: str
    changed: list[Changed]
