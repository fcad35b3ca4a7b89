"""Scores a run: applies the checks of its case, and combines their verdicts into the status of the case.

Nothing is run here. `grade_now` applies checks that need no llm; `score` also those that call one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any

from msgspec import Struct

from evalloom.batchlog.read import without_output
from evalloom.core.model import NO_USAGE, Case, Check, Run, Scored, Status, Verdict, check_name
from evalloom.engine import scoring_function
from evalloom.matchers import BUILT_IN, CheckResult, MatchContext, Matchers, Services
from evalloom.matchers.base import PASSED, number_of
from evalloom.matchers.blame import blamed, steps_in
from evalloom.matchers.negation import negate
from evalloom.matchers.transform import has_transforms, transform, transform_now
from evalloom.matchers.where import Missing, find

_SET = ("set_id", "set_threshold", "set_weight", "set_metric")
_NEGATED = {"negate": True}
_EPSILON = 1e-9
_HEAVIEST = 1e9


class _Part(Struct, frozen=True):
    """The contribution of a check, or of a set of checks: a status, a share between 0 and 1, and a weight.

    `least` and `most` bound the share, whatever the results of unscored checks would be.
    """

    status: Status
    share: float | None
    weight: float
    least: float = 0.0
    most: float = 1.0

    @property
    def is_scored(self) -> bool:
        return self.share is not None


_HOLDS = _Part("passed", 1.0, 1.0, 1.0, 1.0)
"""The part of a check that holds and has no weight of its own."""


def grade_now(case: Case, run: Run, services: Services) -> Scored | None:
    """Return the score of a run; None if one of its checks calls an llm, so that `score` is needed."""
    if run.error or run.skipped or run.blocked:
        return without_output(run)
    if scoring_function.has_function(case):
        return None
    grades: list[CheckResult] = []
    matchers, contexts = services.matchers or BUILT_IN, _Contexts(case, run)
    for check in case.checks:
        grade = _grade(check, contexts, matchers)
        if grade is None:
            return None
        grades.append(grade)
    return _scored(case, run, grades)


async def score(case: Case, run: Run, services: Services) -> Scored:
    """Return the score of a run; checks that call an llm run concurrently."""
    if run.error or run.skipped or run.blocked:
        return without_output(run)
    matchers, contexts = services.matchers or BUILT_IN, _Contexts(case, run)
    grades = [_grade(check, contexts, matchers) for check in case.checks]
    waiting = [
        asyncio.ensure_future(_ask(check, contexts, services))
        for check, grade in zip(case.checks, grades, strict=True)
        if grade is None
    ]
    try:
        answers = iter(await asyncio.gather(*waiting))
    finally:
        # Stop the other calls when the budget is spent or the user stops the batch.
        for task in waiting:
            task.cancel()
    scored = _scored(case, run, [next(answers) if grade is None else grade for grade in grades])
    if scoring_function.has_function(case):
        return await scoring_function.apply(case, scored, services)
    return scored


class _Contexts:
    """What the checks of a run see, made once for each place: most checks look at the same."""

    __slots__ = ("_by_place", "_case", "_run")

    def __init__(self, case: Case, run: Run) -> None:
        self._case, self._run = case, run
        self._by_place: dict[str, MatchContext | Missing] = {}

    def at(self, where: str) -> MatchContext | Missing:
        context = self._by_place.get(where)
        if context is None:
            run, value = self._run, _checked_value(where, self._run)
            context = self._by_place[where] = (
                value
                if type(value) is Missing
                else MatchContext(value, run.output, self._case, run.latency_s, run.usage, run.trace)
            )
        return context


def _grade(check: Check, contexts: _Contexts, matchers: Matchers) -> CheckResult | None:
    """Return the result of a check; None if it has to call an llm."""
    options = check.options
    if options and (why := options.get("unsupported")):
        return CheckResult(None, reason=str(why))
    matcher = matchers.by_kind(check.kind)
    if matcher is None:
        return CheckResult(None, reason=matchers.why_unknown(check.kind))
    context = contexts.at(check.where)
    if isinstance(context, Missing):
        return CheckResult(None if context.is_misplaced else False, reason=context.reason)
    if matcher.grade is None:
        return None
    if not options:
        return matcher.grade(check, context)
    if has_transforms(check):
        changed = transform_now(check, context)
        if not isinstance(changed, MatchContext):
            return changed
        context = changed
    grade = matcher.grade(check, context)
    return grade if grade is None else negate(check, context.value, grade)


async def _ask(check: Check, contexts: _Contexts, services: Services) -> CheckResult:
    matcher = (services.matchers or BUILT_IN).by_kind(check.kind)
    context = contexts.at(check.where)
    assert matcher is not None and isinstance(context, MatchContext)
    grade: CheckResult | None = None
    if check.options and has_transforms(check):
        changed = await transform(check, context, services)
        if isinstance(changed, CheckResult):
            return changed
        context = changed
        # A slow transform may have been all that there was to wait for.
        grade = matcher.grade(check, context) if matcher.grade is not None else None
    if grade is None:
        assert matcher.ask is not None
        grade = await matcher.ask(check, context, services)
    return negate(check, context.value, grade)


def _checked_value(where: str, run: Run) -> Any:
    """Return the value that a check applies to. A step is found by its id, or else by its output key (PIPE-11)."""
    value = find(where, run.output)
    if type(value) is Missing and where.startswith("steps."):
        for step, entry in steps_in(run.trace).items():
            key, rest = entry["output_key"], where.removeprefix("steps.")
            if step in run.output.steps and (rest == key or rest.startswith((f"{key}.", f"{key}["))):
                return find(f"steps.{step}{rest[len(key) :]}", run.output)
    return value


def _scored(case: Case, run: Run, grades: list[CheckResult]) -> Scored:
    checks, verdicts, parts = case.checks, list[Verdict](), list[_Part]()
    usage, has_sets = NO_USAGE, False
    for check, grade in zip(checks, grades, strict=True):
        options = check.options
        if grade is PASSED and (not options or options == _NEGATED):
            verdict, part = _passed(check.name, check.kind, check.where, bool(options)), _HOLDS
        else:
            verdict = _verdict(check, grade)
            part = _part(verdict, grade)
        verdicts.append(verdict)
        parts.append(part)
        if options and not options.keys().isdisjoint(_SET):
            has_sets = True
        if grade.usage is not NO_USAGE:
            usage += grade.usage
    if has_sets:
        parts = _join_sets(checks, verdicts, parts)
    status, mean = _outcome(parts, number_of(case.meta.get("threshold")) if case.meta else None)
    verdicts, step = blamed(run.trace, verdicts) if status == "failed" and run.trace else (verdicts, "")
    return Scored(run.key, status, mean, verdicts, usage, step=step)


@lru_cache(4096)
def _passed(name: str, kind: str, where: str, is_negated: bool) -> Verdict:
    """Return the verdict of a check that says nothing but that it holds, as most checks do."""
    return _verdict(Check(kind, where=where, name=name, options=_NEGATED if is_negated else {}), PASSED)


def _verdict(check: Check, grade: CheckResult) -> Verdict:
    passed = grade.passed
    score = grade.score
    if score is None and passed is not None:
        score = 1.0 if passed else 0.0
    return Verdict(
        check_name(check),
        check.kind,
        check.where,
        "unscored" if passed is None else "passed" if passed else "failed",
        score,
        grade.reason,
        list(grade.mismatches),
        _weight(check.options.get("weight")) if check.options else 1.0,
        named_scores=grade.named_scores,
    )


def _part(verdict: Verdict, grade: CheckResult) -> _Part:
    if grade.passed is None:
        return _Part(verdict.status, None, verdict.weight)
    share = grade.share if grade.share is not None else grade.score
    share = float(grade.passed) if share is None else min(1.0, max(0.0, share))
    return _Part(verdict.status, share, verdict.weight, share, share)


def _weight(value: Any) -> float:
    """Return a weight; an invalid one counts as 1."""
    weight = number_of(value)
    return 1.0 if weight is None or weight < 0 else min(weight, _HEAVIEST)


def _join_sets(checks: Iterable[Check], verdicts: list[Verdict], parts: list[_Part]) -> list[_Part]:
    """Combine the parts of each set of checks into one, and add a verdict for the set."""
    joined: list[_Part] = []
    for key, members in groupby(zip(checks, parts, strict=True), key=lambda pair: _set_of(pair[0])):
        set_parts = [part for _, part in members]
        if not key:
            joined += set_parts
            continue
        options = dict(key)
        threshold = number_of(options.get("set_threshold"))
        status, mean = _outcome(set_parts, threshold)
        weight = _weight(options.get("set_weight"))
        passed = sum(part.status == "passed" for part in set_parts)
        needed = "" if threshold is None else f", needed {threshold:g}"
        reason = f"{passed} of {len(set_parts)} hold{'' if mean is None else f', score {mean:.3g}'}{needed}"
        name = str(options.get("set_metric") or "assert_set")
        verdicts.append(Verdict(name, "assert_set", "output", status, mean, reason, weight=weight))
        joined.append(_Part(status, mean, weight, *_bounds(set_parts)))
    return joined


def _set_of(check: Check) -> tuple[tuple[str, Any], ...]:
    """Return the options that the checks of one set share; empty for a check outside of sets."""
    return tuple((name, check.options[name]) for name in _SET if name in check.options)


def _outcome(parts: list[_Part], threshold: float | None) -> tuple[Status, float | None]:
    """Return the status and the weighted mean of parts. A part of weight 0 is reported but does not count."""
    if len(parts) == 1 and threshold is None and parts[0].weight:
        return parts[0].status, parts[0].share
    if parts and threshold is None and parts.count(_HOLDS) == len(parts):
        return "passed", 1.0
    counted = [part for part in parts if part.weight > 0]
    scored = [(part.share, part.weight) for part in counted if part.share is not None]
    total = sum([weight for _, weight in scored])
    mean = sum([share * weight for share, weight in scored]) / total if scored else None
    if not counted:
        return ("passed" if parts and all(part.share is not None for part in parts) else "unscored"), None
    if threshold is not None:
        return _by_threshold(counted, threshold), mean
    statuses = [part.status for part in counted]
    return ("failed" if "failed" in statuses else "unscored" if "unscored" in statuses else "passed"), mean


def _by_threshold(parts: list[_Part], threshold: float) -> Status:
    """Return passed or failed if no result of the unscored checks could change that, else unscored."""
    least, most = _bounds(parts)
    # Where nothing is scored, even a threshold of 0 proves nothing.
    if least >= threshold - _EPSILON and any(part.is_scored for part in parts):
        return "passed"
    return "failed" if most < threshold - _EPSILON else "unscored"


def _bounds(parts: list[_Part]) -> tuple[float, float]:
    """Return the lowest and highest weighted mean that the unscored checks allow."""
    total = sum(part.weight for part in parts)
    if not total:
        return (1.0, 1.0) if all(part.is_scored for part in parts) else (0.0, 1.0)
    least = sum(part.weight * part.least for part in parts) / total
    return least, sum(part.weight * part.most for part in parts) / total
