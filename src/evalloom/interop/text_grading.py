"""Decides as the metrics of DeepEval, RAGAS and pydantic-evals that need no model, where no kind of the engine does."""

from __future__ import annotations

import re

from evalloom.core.model import Check
from evalloom.core.patterns import BadPattern, find
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    bad_option,
    failed,
    graded,
    show,
    text_of,
    threshold_of,
    unscored,
)


def deepeval_exact_match(check: Check, context: MatchContext) -> CheckResult:
    """The texts are equal but for blanks around them."""
    if not isinstance(check.expected, str):
        return bad_option("expected", "a text", check.expected)
    if text_of(context.value).strip() == check.expected.strip():
        return PASSED
    return failed(f"expected {show(check.expected)}, got {show(context.value)}")


def deepeval_pattern_match(check: Check, context: MatchContext) -> CheckResult:
    """A regular expression matches the whole output, without blanks around it."""
    written = check.expected
    if not isinstance(written, str):
        return bad_option("expected", "a regular expression", written)
    flags = re.IGNORECASE if check.options.get("ignore_case") is True else 0
    text = text_of(context.value).strip()
    try:
        find(written.strip(), "", flags)  # a pattern that is wrong alone may be right between brackets
        match = find(rf"{_flags_first(written.strip())}\Z", text, flags)
    except BadPattern as error:
        return unscored(str(error))
    return PASSED if match else failed(f"expected all of {show(text)} to match {show(written)}")


def _flags_first(pattern: str) -> str:
    """Return a pattern that matches from the beginning, with its global flags before the rest, as `re` wants them."""
    flags = re.match(r"(?:\(\?[aiLmsux]+\))*", pattern)
    end = flags.end() if flags else 0
    # The line break ends a comment of a pattern with the flag x.
    return rf"{pattern[:end]}\A(?:{pattern[end:]}{chr(10) if 'x' in pattern[:end] else ''})"


def ragas_string_similarity(check: Check, context: MatchContext) -> CheckResult:
    """One minus the edit distance, as a share of the longer text, reaches the threshold."""
    from rapidfuzz.distance import Levenshtein

    threshold = threshold_of(check, 0.5)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    references = check.expected if isinstance(check.expected, list) else [check.expected]
    if not references or not all(isinstance(reference, str) for reference in references):
        return bad_option("expected", "a text", check.expected)
    text = text_of(context.value)
    return graded(max(Levenshtein.normalized_similarity(one, text) for one in references), threshold, "similarity")


def pydantic_contains(check: Check, context: MatchContext) -> CheckResult:
    """The output as Python prints it contains the value as Python prints it."""
    try:
        text, part = str(context.value), str(check.expected)
    except RecursionError:
        return failed("expected an output that can be printed, got one that is nested too deep")
    if check.options.get("case_sensitive") is False:
        text, part = text.lower(), part.lower()
    if not part:
        return unscored("value: is empty, which holds for any answer")
    return PASSED if part in text else failed(f"expected {show(part)} in {show(text)}")
