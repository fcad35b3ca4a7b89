"""What the batches of one system have beyond those of others: other checks, and more to say when two are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from evalloom.analysis.compare_measures import Measures

from evalloom.core.model import Case, Check, Record, Run, Scored


def _all_checks(case: Case, further: tuple[Check, ...], config: Record) -> tuple[Check, ...]:
    return case.checks + further


class BatchKind(Struct, frozen=True):
    """Batches whose configuration says `kind: <name>`. The defaults are those of a batch like any other."""

    name: str
    checks: Callable[[Case, tuple[Check, ...], Record], tuple[Check, ...]] = _all_checks
    """The checks of a case, made of its own and the user's further ones by the batch's configuration."""
    llm_answers: Callable[[Record], bool] = lambda config: False
    """Whether an llm answers, by the batch's configuration: then another llm is another configuration (RAG-10)."""
    by_bucket: bool = False
    """Whether its batches are compared by bucket without being asked."""
    has_measures: bool = False
    """Whether the scores of its checks are measures, whose means are compared beside the pass rate."""
    expected_documents: Callable[[Run], Sequence[str]] = lambda run: ()
    """The documents that a run should find; those of them that changed may explain why it did not pass."""
    failure_reason: Callable[[Run, Scored], str] = lambda run, scored: ""
    """Why a run did not pass, where the kind knows more than the verdicts say; else empty."""
    earlier_note: Callable[[Measures], str] = lambda measures: ""
    """What the measures of a case before say about it now that it fails; empty where they say nothing."""


PLAIN = BatchKind("")
"""A batch that is of no system's kind."""
