"""What a system adds to its batches: its own checks, and more details in comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from evalloom.batchlog.results import Measures

from evalloom.core.model import Case, Check, Record, Run, Scored


class BatchKind(Struct, frozen=True):
    """Batches whose configuration says `kind: <name>`. The defaults are those of a plain batch."""

    name: str
    checks: Callable[[Case, tuple[Check, ...], Record], tuple[Check, ...]] = lambda case, added, config: (
        case.checks + added
    )
    """Returns the checks of a case, from its own, the user's additional ones and the configuration of the batch."""
    llm_answers: Callable[[Record], bool] = lambda config: False
    """Returns whether an llm answers: if so, another llm is another configuration (RAG-10)."""
    by_bucket: bool = False
    """Whether its batches are always compared by bucket."""
    has_measures: bool = False
    """Whether the scores of its checks are measures, whose means are compared in addition to the pass rate."""
    expected_documents: Callable[[Run], Sequence[str]] = lambda run: ()
    """Returns the documents that a run should find; changes in them may explain why it did not pass."""
    failure_reason: Callable[[Run, Scored], str] = lambda run, scored: ""
    """Returns why a run did not pass, if the kind can tell more than the verdicts; else empty."""
    earlier_note: Callable[[Measures], str] = lambda measures: ""
    """Returns a note on a failing case from its earlier measures; empty if there is none."""


PLAIN = BatchKind("")
"""A batch without a system."""
