"""The checks of a case in a RAG batch, for retrieval or for answers, from the same dataset record."""

from __future__ import annotations

from msgspec import structs

from evalloom.core.model import Case, Check, Record
from evalloom.core.ranking import names_at

KIND = "rag"
"""The `kind` in the configuration of a RAG batch."""
CITATIONS, FAITHFULNESS = "citations", "faithfulness"
REQUIRABLE = (CITATIONS, FAITHFULNESS)
"""Checks that `--require` can make decisive for an answer, in addition to `must_include`."""


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
