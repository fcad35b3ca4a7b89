"""What the batches of one system have beyond those of others: other checks, and more to say when two are compared."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from evalloom.core.model import Case, Check, Record, Run, Scored


class BatchKind(Struct, frozen=True):
    """Batches whose configuration says `kind: <name>`."""

    name: str
    checks: Callable[[Case, tuple[Check, ...], Record], tuple[Check, ...]]
    """The checks of a case, made of those of its dataset and the user's further ones by the batch's configuration."""
    is_answered: Callable[[Record], bool] = lambda config: False
    """Whether by its configuration an llm answers: then another llm makes two batches incomparable."""
    by_bucket: bool = False
    """Whether its batches are compared by bucket without being asked."""
    has_measures: bool = False
    """Whether the scores of its checks are measures, whose means are compared beside the pass rate."""
    expected_documents: Callable[[Run], list[str]] = lambda run: []
    """The documents that a run should have found."""
    reason: Callable[[Run, Scored], str] = lambda run, scored: ""
    """Why a run did not pass, where the kind knows more than the verdicts; else empty."""
