"""Likeness of meaning: by embeddings, or by a judge where there are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.model import Check, Embedder
from evalloom.matchers import judge
from evalloom.matchers.base import (
    CheckResult,
    MatchContext,
    Matcher,
    Services,
    bad_option,
    graded,
    number_of,
    text_of,
    threshold_of,
    unscored,
)

_THRESHOLD = 0.75
_VARIANTS = ("cosine", "dot", "euclidean")


def likeness(first: Sequence[float], second: Sequence[float], variant: str = "cosine") -> float:
    """Return the similarity of two vectors; a distance becomes 1 / (1 + distance), so that more is nearer."""
    if variant == "euclidean":
        return 1 / (1 + math.dist(first, second))
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    if variant == "dot":
        return dot
    lengths = math.hypot(*first) * math.hypot(*second)
    return dot / lengths if lengths else 0.0


async def _similarity(check: Check, context: MatchContext, services: Services) -> CheckResult:
    options = _options(check)
    if isinstance(options, CheckResult):
        return options
    if services.embed is None:
        return unscored("no embeddings: name a model under embeddings: in evalloom.yaml")
    return await _compare(services.embed, text_of(context.value), *options)


def _options(check: Check) -> tuple[list[str], str, float] | CheckResult:
    """Return the expected texts, the variant and the threshold; or which of them is wrong."""
    variant = check.options.get("variant", "cosine")
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    threshold = threshold_of(check, _THRESHOLD)
    if variant not in _VARIANTS:
        return bad_option("variant", "cosine, dot or euclidean", variant)
    if not wanted or not all(isinstance(text, str) for text in wanted):
        return bad_option("expected", "a text or a list of texts", check.expected)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    return list(wanted), variant, threshold


def _refuses_similarity(check: Check) -> str:
    options = _options(check)
    return options.reason if isinstance(options, CheckResult) else ""


def _refuses_meaning(check: Check) -> str:
    return "" if isinstance(check.expected, str) else bad_option("expected", "a text", check.expected).reason


async def _compare(embed: Embedder, text: str, wanted: list[str], variant: str, threshold: float) -> CheckResult:
    """Return the similarity to the nearest expected text."""
    try:
        ours, *theirs = await embed([text, *wanted])
        best = max(likeness(ours, vector, variant) for vector in theirs)
    except CallError as error:
        return unscored(f"embeddings: {error}")
    except ValueError:
        return unscored("embeddings: expected one vector per text, all of one length")
    if number_of(best) is None:
        return unscored("embeddings: expected finite numbers")
    return graded(best, threshold, f"{variant} similarity")


async def grade_meaning(
    check: Check, expected: str, actual: Any, context: MatchContext, services: Services
) -> CheckResult:
    """Compare the meaning of a value with the expected one: by embeddings if there are any, else by the judge."""
    text = text_of(actual)
    if services.embed is not None:
        threshold = number_of(check.options.get("semantic_threshold", _THRESHOLD))
        return await _compare(
            services.embed, text, [expected], "cosine", _THRESHOLD if threshold is None else threshold
        )
    if services.judge is None:
        return unscored("no embeddings and no judge: name a model under embeddings: in evalloom.yaml, or --judge LLM")
    asked = Check("judge", expected, options={"variant": "meaning"})
    task = judge.task_of(asked, MatchContext(text, context.output, context.case))
    return task if isinstance(task, CheckResult) else await judge.ask(task, services)


async def _semantic(check: Check, context: MatchContext, services: Services) -> CheckResult:
    if not isinstance(check.expected, str):
        return bad_option("expected", "a text", check.expected)
    options = {"semantic_threshold": check.options["threshold"]} if "threshold" in check.options else {}
    return await grade_meaning(Check("semantic", options=options), check.expected, context.value, context, services)


MATCHERS = (
    Matcher(
        "similarity",
        "embeddings at least 0.75 alike",
        ask=_similarity,
        needs=lambda check: "embeddings",
        refuses=_refuses_similarity,
    ),
    Matcher(
        "semantic",
        "the same meaning, by embeddings or else by the judge",
        ask=_semantic,
        needs=lambda check: "judge_or_embeddings",
        refuses=_refuses_meaning,
    ),
)
