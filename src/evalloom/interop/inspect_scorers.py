"""The scorers of Inspect as checks, by the name that a user gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalloom.core.model import Case, Check, Record
from evalloom.data.cells import is_blank
from evalloom.data.dialect import Scorer


def _targets(case: Case) -> list[str]:
    target = case.raw.get("target")
    if is_blank(target) or target == []:
        return []
    return [str(answer) for answer in (target if isinstance(target, list) else [target])]


def _check(kind: str, fixed: Record | None = None) -> Callable[[Case, Record], tuple[Check, ...]]:
    def checks(case: Case, options: Record) -> tuple[Check, ...]:
        targets = _targets(case)
        return (Check(kind, targets, name="target", options={**(fixed or {}), **options}),) if targets else ()

    return checks


def _choice(case: Case, options: Record) -> tuple[Check, ...]:
    choices: Any = case.inputs.get("choices")
    return _check("inspect_choice", {"choices": choices if isinstance(choices, list) else []})(case, options)


def _judged(variant: str) -> Callable[[Case, Record], tuple[Check, ...]]:
    def checks(case: Case, options: Record) -> tuple[Check, ...]:
        # Several targets are one text to a model, as in Inspect.
        target = "".join(_targets(case))
        return (Check("judge", target, name="target", options={"variant": variant}),) if target else ()

    return checks


SCORERS = (
    Scorer(
        "match",
        "the output ends with a target, or has it elsewhere",
        _check("inspect_match"),
        {"location": ("begin", "end", "any", "exact"), "ignore_case": bool, "numeric": bool},
    ),
    Scorer("includes", "a target is in the output", _check("inspect_includes"), {"ignore_case": bool}),
    Scorer("exact", "equal without case, punctuation and articles", _check("inspect_exact")),
    Scorer(
        "f1",
        "F1 over words reaches a threshold (0.5)",
        _check("inspect_f1"),
        {"threshold": float, "stop_words": str},
    ),
    Scorer(
        "pattern",
        "a group of a regular expression equals a target",
        _check("inspect_pattern"),
        {"pattern": str, "ignore_case": bool, "match_all": bool},
        required=("pattern",),
    ),
    Scorer(
        "answer",
        "what follows ANSWER: equals a target",
        _check("inspect_answer"),
        {"pattern": ("letter", "word", "line")},
        required=("pattern",),
    ),
    Scorer("choice", "the letters after ANSWER: are the target", _choice, {"multiple_correct": bool}),
    Scorer("model_graded_qa", "a judge finds that the output meets the target", _judged("model-graded-closedqa")),
    Scorer("model_graded_fact", "a judge finds the facts of the target in the output", _judged("factuality")),
)
