"""What RAG batches have beyond others: checks by their purpose, measures, buckets, and why a source was not found."""

from __future__ import annotations

from typing import Any

from evalloom.analysis.compare_measures import Measures
from evalloom.core.model import Record, Run, Scored
from evalloom.engine.batch_kind import BatchKind
from evalloom.rag.checks import KIND, checks_for

_SOURCES = 3
"""How many sources a reason names."""


def llm_answers(config: Record) -> bool:
    """Whether the answers of an llm are tested, and not only what is retrieved."""
    return config.get("purpose") == "answer"


def expected_sources(run: Run) -> list[str]:
    """The sources that a run should find, each once."""
    return _texts(run.raw.get("expected_sources"))


def failure_reason(run: Run, scored: Scored) -> str:
    """What should have been found and was not, with what was found instead; of an answer also what is wrong with it."""
    missed = any(verdict.name.startswith("hit@") and verdict.status == "failed" for verdict in scored.verdicts)
    if run.error or not missed:
        return ""
    sources = [source.get("source") if isinstance(source, dict) else source for source in run.output.sources]
    retrieved = f"expected {_first_of(expected_sources(run))}, found {_first_of(_texts(sources)) or 'nothing'}"
    decides = next((verdict for verdict in scored.verdicts if verdict.weight and verdict.status == "failed"), None)
    if decides is None or decides.name.startswith("hit@"):
        return retrieved
    return f"{decides.name}: {decides.reason}; {retrieved}"


def earlier_rank(measures: Measures) -> str:
    """A note about the rank of the first expected source before; empty where the measures do not tell it."""
    rank = rank_of_first(measures)
    return f"an expected source stood at rank {rank} before" if rank else ""


def rank_of_first(measures: Measures) -> int:
    """The rank of the first expected source, which the reciprocal rank tells; 0 where it does not."""
    reciprocal = dict(measures).get("mrr", 0.0)
    rank = 1 / reciprocal if reciprocal else 0.0
    # The mean of several repeats is no rank.
    return round(rank) if abs(rank - round(rank)) < 1e-6 else 0


def _texts(value: Any) -> list[str]:
    """The texts of a list in a user's record, each once."""
    return list(dict.fromkeys(text for text in value if isinstance(text, str))) if isinstance(value, list) else []


def _first_of(names: list[str]) -> str:
    more = len(names) - _SOURCES
    return ", ".join(names[:_SOURCES]) + (f" and {more} more" if more > 0 else "")


BATCH_KIND = BatchKind(
    name=KIND,
    checks=checks_for,
    llm_answers=llm_answers,
    by_bucket=True,
    has_measures=True,
    expected_documents=expected_sources,
    failure_reason=failure_reason,
    earlier_note=earlier_rank,
)
