"""What RAG batches add to other batches: checks by purpose, measures, buckets, and why a source is missing."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from evalloom.analysis.compare_measures import Measures
from evalloom.core.model import Case, Check, Record, Run, Scored
from evalloom.core.ranking import names_at
from evalloom.engine.batch_kind import BatchKind

KIND = "rag"
"""The `kind` in the configuration of a RAG batch."""
CITATIONS, FAITHFULNESS = "citations", "faithfulness"
REQUIRABLE = (CITATIONS, FAITHFULNESS)
"""Checks that `--require` can make decisive for an answer, in addition to `must_include`."""
_SOURCES = 3
"""Most sources that a reason names."""


def checks_for(case: Case, further: tuple[Check, ...], config: Record) -> tuple[Check, ...]:
    """The checks of a case by the purpose of its batch; checks of weight 0 are reported and decide nothing.

    `further` checks apply to answers, so a batch that only retrieves ignores them.
    """
    hits = [check for check in case.checks if check.kind == "source_hit"]
    sources = [name for check in hits for name in check.expected]
    hit, *others = (
        Check("ranking", sources, "sources", name, {"measure": name, **({"weight": 0} if place else {})})
        for place, name in enumerate(names_at(config["k"]))
    )
    if config["purpose"] == "retrieve":
        return (hit, *others) if sources else ()
    options = {"normalise": True} if config.get("normalise") else {}
    anchors = [
        structs.replace(check, name="must_include", options=options)
        for check in case.checks
        if check.kind == "contains_all"
    ]
    if not anchors:
        return ()
    informative = [structs.replace(hit, options={**hit.options, "weight": 0})] if sources else []
    return (*anchors, *_quality_checks(config), *informative, *further)


def _quality_checks(config: Record) -> list[Check]:
    required = config.get("require") or []
    checks = [Check("citations", name=CITATIONS, options={} if CITATIONS in required else {"weight": 0})]
    if config.get(FAITHFULNESS):
        options = {"variant": "context-faithfulness", **({} if FAITHFULNESS in required else {"weight": 0})}
        checks.append(Check("judge", name=FAITHFULNESS, options=options))
    return checks


def llm_answers(config: Record) -> bool:
    """Whether the batch tests the answers of an llm, and not only retrieval."""
    return config.get("purpose") == "answer"


def expected_sources(run: Run) -> list[str]:
    """The distinct sources that a run should retrieve."""
    return _texts(run.raw.get("expected_sources"))


def failure_reason(run: Run, scored: Scored) -> str:
    """The expected and the retrieved sources of a miss; for an answer also the check that failed."""
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
    """A note with the earlier rank of the first expected source; empty when the measures do not give it."""
    rank = rank_of_first(measures)
    return f"an expected source stood at rank {rank} before" if rank else ""


def rank_of_first(measures: Measures) -> int:
    """The rank of the first expected source, from the reciprocal rank; 0 when there is none."""
    reciprocal = dict(measures).get("mrr", 0.0)
    rank = 1 / reciprocal if reciprocal else 0.0
    # The mean over several repeats is not a rank.
    return round(rank) if abs(rank - round(rank)) < 1e-6 else 0


def _texts(value: Any) -> list[str]:
    """The distinct strings of a list in a user's record."""
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
