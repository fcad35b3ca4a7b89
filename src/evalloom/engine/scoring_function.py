"""A function of a case that decides its status and score from its named scores, in place of the mean of its checks.

`case.meta["scoring_function"]` is a step as in `matchers.transform`: its language and source. It gets the named scores
and a context with `threshold` and `componentResults`, and returns an object with `pass`, `score` and `reason`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import structs

from evalloom.core.model import Case, Record, Scored, Verdict
from evalloom.core.text import shorten
from evalloom.matchers.base import Services, number_of, show
from evalloom.matchers.transform import StepFailed, call_step

META = "scoring_function"
_REASON = 1_000


def has_function(case: Case) -> bool:
    """Whether a case decides its status itself."""
    return bool(case.meta) and META in case.meta


async def apply(case: Case, scored: Scored, services: Services) -> Scored:
    """Return a score with the status that the function of its case gives, and a verdict with its reason.

    A function that fails fails the case. What was not scored cannot be decided, so such a case stays as it is.
    """
    if any(verdict.status == "unscored" for verdict in scored.verdicts):
        return scored
    try:
        answer = await call_step(case.meta[META], _arguments(case, scored), services)
    except StepFailed as failure:
        return _with(
            scored, "unscored" if failure.is_ours else "failed", None if failure.is_ours else 0.0, str(failure)
        )
    passed, score = (answer.get("pass"), number_of(answer.get("score"))) if isinstance(answer, dict) else (None, None)
    if not isinstance(passed, bool) or score is None or not isinstance(answer.get("reason"), str):
        return _with(scored, "failed", 0.0, f"expected an object with pass, score and reason, got {show(answer)}")
    return _with(scored, "passed" if passed else "failed", float(score), answer["reason"])


def named_scores(verdicts: Iterable[Verdict], names: Collection[str]) -> dict[str, float]:
    """Return the weighted mean of the scores under each name: one of `names`, or one that the code of a check returned.

    A score that code returns under the name of its own check is left out, as in promptfoo.
    """
    sums: dict[str, tuple[float, float]] = {}
    for verdict in verdicts:
        own = {verdict.name: verdict.score} if verdict.score is not None and verdict.name in names else {}
        for name, value in (verdict.named_scores | own).items():
            score, weight = sums.get(name, (0.0, 0.0))
            sums[name] = score + value * verdict.weight, weight + verdict.weight
    return {name: score / weight if weight else 0.0 for name, (score, weight) in sums.items()}


def _arguments(case: Case, scored: Scored) -> Record:
    names = {check.name for check in case.checks if check.name}
    names |= {str(check.options["set_metric"]) for check in case.checks if check.options.get("set_metric")}
    components = [
        {"pass": verdict.status == "passed", "score": verdict.score, "reason": verdict.reason}
        for verdict in scored.verdicts
    ]
    named = named_scores(scored.verdicts, names)
    return {"namedScores": named, "context": {"threshold": case.meta.get("threshold"), "componentResults": components}}


def _with(scored: Scored, status: Any, score: float | None, reason: str) -> Scored:
    verdict = Verdict(META, META, "output", status, score, shorten(reason, _REASON))
    return structs.replace(scored, status=status, score=score, verdicts=[*scored.verdicts, verdict])
