"""The batch kind of RAG: its checks by purpose, its expected sources, and the reasons of its failures."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from evalloom.batchlog.results import Measures
from evalloom.core.model import Case, Check, Record, Run, Scored
from evalloom.core.ranking import file_of, names_at
from evalloom.engine.batch_kind import BatchKind

KIND = "rag"
"""The `kind` in the configuration of a RAG batch."""
CITATIONS, FAITHFULNESS = "citations", "faithfulness"
REQUIRABLE = (CITATIONS, FAITHFULNESS)
"""Checks that `--require` can make decisive for an answer, in addition to `must_include`."""
_MAX_SOURCES = 3
"""Maximum number of sources in a reason."""


def checks_for(case: Case, answer_checks: tuple[Check, ...], config: Record) -> tuple[Check, ...]:
    """The checks of a case by the purpose of its batch; checks of weight 0 are reported but do not decide.

    `answer_checks` are ignored by a batch that only retrieves.
    """
    hits = [check for check in case.checks if check.kind == "source_hit"]
    sources = [name for check in hits for name in check.expected]
    hit, *more_measures = (
        Check("ranking", sources, "sources", name, {"measure": name, **({"weight": 0} if index else {})})
        for index, name in enumerate(names_at(config["k"]))
    )
    if config["purpose"] == "retrieve":
        return (hit, *more_measures) if sources else ()
    options = {"normalise": True} if config.get("normalise") else {}
    anchors = [
        structs.replace(check, name="must_include", options={**check.options, **options})
        for check in case.checks
        if check.kind == "contains_all"
    ]
    if not anchors:
        return ()
    reported_hit = [structs.replace(hit, options={**hit.options, "weight": 0})] if sources else []
    return (*anchors, *_quality_checks(config), *reported_hit, *answer_checks)


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
    return list(dict.fromkeys(map(file_of, _distinct_strings(run.raw.get("expected_sources")))))


def failure_reason(run: Run, scored: Scored) -> str:
    """The expected and the retrieved sources of a miss; for an answer also the check that failed."""
    missed = any(verdict.name.startswith("hit@") and verdict.status == "failed" for verdict in scored.verdicts)
    if run.error or not missed:
        return ""
    sources = [source.get("source") if isinstance(source, dict) else source for source in run.output.sources]
    retrieved = _join_first(_distinct_strings(sources)) or "nothing"
    miss = f"expected {_join_first(expected_sources(run))}, found {retrieved}"
    deciding = next((verdict for verdict in scored.verdicts if verdict.weight and verdict.status == "failed"), None)
    if deciding is None or deciding.name.startswith("hit@"):
        return miss
    return f"{deciding.name}: {deciding.reason}; {miss}"


def earlier_rank(measures: Measures) -> str:
    """A note with the earlier rank of the first expected source; empty when the measures do not give it."""
    rank = rank_of_first(measures)
    return f"an expected source was at rank {rank} before" if rank else ""


def rank_of_first(measures: Measures) -> int:
    """The rank of the first expected source, from the reciprocal rank; 0 when there is none."""
    reciprocal = dict(measures).get("mrr", 0.0)
    rank = 1 / reciprocal if reciprocal else 0.0
    # The mean over several repeats is not a rank.
    return round(rank) if abs(rank - round(rank)) < 1e-6 else 0


def _distinct_strings(value: Any) -> list[str]:
    """The distinct strings of a list in a user's record."""
    return list(dict.fromkeys(text for text in value if isinstance(text, str))) if isinstance(value, list) else []


def _join_first(names: list[str]) -> str:
    more = len(names) - _MAX_SOURCES
    return ", ".join(names[:_MAX_SOURCES]) + (f" and {more} more" if more > 0 else "")


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
