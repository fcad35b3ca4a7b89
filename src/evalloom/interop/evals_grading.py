"""Decides as the basic classes of OpenAI evals do: the text as it is, against any of the ideal answers."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    bad_option,
    failed,
    show,
    text_of,
    unscored,
)

_ARTICLES = lazy_pattern(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_EMPTY = "expected: is empty, which holds for any answer"


def _answers(check: Check) -> list[str] | None:
    answers = check.expected if isinstance(check.expected, list) else [check.expected]
    return answers if answers and all(isinstance(answer, str) for answer in answers) else None


def _any_answer(check: Check, where: str, holds: Callable[[str], bool], may_be_empty: bool = False) -> CheckResult:
    answers = _answers(check)
    if answers is None:
        return bad_option("expected", "a text or a list of texts", check.expected)
    if "" in answers and not may_be_empty:
        return unscored(_EMPTY)
    return PASSED if any(map(holds, answers)) else failed(f"expected {show(check.expected, 120)} {where}")


def match(check: Check, context: MatchContext) -> CheckResult:
    """The output begins with an answer: `Match`."""
    text = text_of(context.value)
    return _any_answer(check, f"at the beginning of {show(text)}", text.startswith)


def includes(check: Check, context: MatchContext) -> CheckResult:
    """An answer is in the output: `Includes`."""
    text = text_of(context.value)
    if check.options.get("ignore_case") is not True:
        return _any_answer(check, f"in {show(text)}", text.__contains__)
    lower = text.lower()
    return _any_answer(check, f"in {show(text)}, in any case", lambda answer: answer.lower() in lower)


def fuzzy_match(check: Check, context: MatchContext) -> CheckResult:
    """Without case, punctuation and articles, the output is in an answer or an answer in it: `FuzzyMatch`."""
    text = _bare(text_of(context.value))

    def holds(answer: str) -> bool:
        bare = _bare(answer)
        return text == bare or bool(text and bare and (bare in text or text in bare))

    return _any_answer(check, f"in {show(text)}, or the other way round", holds, may_be_empty=True)


def _bare(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def json_match(check: Check, context: MatchContext) -> CheckResult:
    """The output is JSON and equal to an answer, which is JSON too: `JsonMatch`."""
    answers = _answers(check)
    if answers is None:
        return bad_option("expected", "JSON in a text, or a list of such texts", check.expected)
    wanted = []
    for answer in answers:
        try:
            wanted.append(json.loads(answer))
        except (ValueError, RecursionError):
            return unscored(f"expected: is not JSON: {show(answer)}")
    try:
        value = json.loads(text_of(context.value))
        is_equal = any(_is_same(value, answer) for answer in wanted)
    except (ValueError, RecursionError):
        return failed(f"expected JSON, got {show(context.value)}")
    return PASSED if is_equal else failed(f"expected the JSON {show(check.expected, 120)}, got {show(context.value)}")


def _is_same(value: Any, wanted: Any) -> bool:
    # To OpenAI evals null stands for a missing value, which equals nothing.
    if value is None or wanted is None:
        return False
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(_is_same(value.get(key), wanted.get(key)) for key in {**value, **wanted})
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_is_same, value, wanted))
    return bool(value == wanted) and not isinstance(value, dict | list)


def json_validator(check: Check, context: MatchContext) -> CheckResult:
    """The output is JSON: `JsonValidator`."""
    try:
        json.loads(text_of(context.value))
    except (ValueError, RecursionError):
        return failed(f"expected JSON, got {show(context.value)}")
    return PASSED


def other_class(check: Check, context: MatchContext) -> CheckResult:
    """A class whose verdicts are not computed here."""
    return unscored(str(check.options.get("reason") or "its class is not scored here"))
