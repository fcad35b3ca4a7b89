"""Texts that must stand in the output, at its beginning, at its end, or match a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from evalloom.core.model import Check
from evalloom.core.patterns import BadPattern, search
from evalloom.core.phrases import contains_phrase, find_phrase, plain_width
from evalloom.matchers.base import (
    PASSED,
    PREPARING,
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    composed,
    failed,
    prepared,
    show,
    text_of,
    unscored,
)

_ABSENT = failed("")
"""What a negated check hopes for; nobody sees a reason."""
_EMPTY = "expected: is empty, which holds for any answer"


def _contains(check: Check, context: MatchContext) -> CheckResult:
    expected, value = check.expected, context.value
    if type(expected) is str and type(value) is str and expected and PREPARING.isdisjoint(check.options):
        if composed(expected) in composed(value):
            return PASSED
        if check.options.get("negate") is True:
            return _ABSENT
        return failed(f"expected {show(expected)} in {show(value)}")
    if expected is None:
        return bad_option("expected", "a text", expected)
    if isinstance(expected, dict | list):
        from evalloom.matchers.structural import as_compared

        compared = as_compared(value, expected)
        if isinstance(expected, list) and isinstance(compared, str):
            return unscored("expected: a list is no part of a text; use contains_all or contains_any")
        return _holds(expected, compared)
    if isinstance(value, list):
        return _all(check, context)
    return _text_check(check, context, str.__contains__, "{} in {}")


def _holds(expected: Any, value: Any) -> CheckResult:
    """Treat an object in an object as a subset, and anything in a list as one of its elements."""
    if isinstance(expected, dict) and isinstance(value, dict):
        from evalloom.matchers.structural import LENIENT, compare, verdict_of

        return verdict_of(compare(expected, value, LENIENT).mismatches)
    wanted = expected if isinstance(expected, list) else [expected]
    members = value if isinstance(value, list) else [value]
    lacking = [item for item in wanted if not any(_is_same(item, member) for member in members)]
    return failed(f"missing {show(lacking, 120)} in {show(value)}") if lacking else PASSED


def _is_same(expected: Any, value: Any) -> bool:
    from evalloom.matchers.structural import LENIENT, compare

    return not compare(expected, value, LENIENT).mismatches


def _text_check(check: Check, context: MatchContext, holds: Callable[[str, str], bool], what: str) -> CheckResult:
    if check.expected is None or isinstance(check.expected, dict | list):
        return bad_option("expected", "a text", check.expected)
    expected, value = text_of(check.expected), text_of(context.value)
    part = prepared(check, composed(expected))
    if not part:
        return unscored(_EMPTY)
    if holds(prepared(check, composed(value)), part):
        return PASSED
    return failed("expected " + what.format(show(expected), show(value)))


def _icontains(check: Check, context: MatchContext) -> CheckResult:
    if isinstance(context.value, list):
        return _all(check, context, folds=True)
    return _text_check(check, context, lambda text, part: part.casefold() in text.casefold(), "{} in {}, in any case")


def _starts_with(check: Check, context: MatchContext) -> CheckResult:
    return _text_check(check, context, str.startswith, "{} at the beginning of {}")


def _ends_with(check: Check, context: MatchContext) -> CheckResult:
    return _text_check(check, context, str.endswith, "{} at the end of {}")


def _parts(check: Check, value: Any, folds: bool) -> tuple[list[Any], list[Any]] | CheckResult:
    """Return the expected parts that the value contains and those it lacks, or why they cannot be searched."""
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or any(part is None or isinstance(part, dict | list) for part in wanted):
        return bad_option("expected", "a list of texts", check.expected)
    if any(part == "" for part in wanted):
        return unscored(_EMPTY)
    there: list[Any] = []
    lacking: list[Any] = []
    if isinstance(value, list):
        # Members are compared by value, so that "1" is not in [10].
        members = [_prepared_text(check, item, folds) for item in value]
        for part in wanted:
            is_member = any(_is_same(_prepared_text(check, part, folds), member) for member in members)
            (there if is_member else lacking).append(part)
    else:
        text = _prepared_text(check, text_of(value), folds)
        holds = contains_phrase if _is_whole(check) else str.__contains__
        for part in wanted:
            (there if holds(text, _prepared_text(check, text_of(part), folds)) else lacking).append(part)
    return there, lacking


def _is_whole(check: Check) -> bool:
    return check.options.get("whole_numbers") is True


def _prepared_text(check: Check, value: Any, folds: bool) -> Any:
    if not isinstance(value, str):
        return value
    text = prepared(check, composed(value))
    return text.casefold() if folds else text


def _all(check: Check, context: MatchContext, folds: bool = False) -> CheckResult:
    parts = _parts(check, context.value, folds)
    if isinstance(parts, CheckResult):
        return parts
    _, lacking = parts
    if not lacking:
        return PASSED
    text = plain_width(text_of(context.value))
    is_hidden = any(find_phrase(text, plain_width(text_of(part))) == "in a longer number" for part in lacking)
    note = " (a number inside a longer one does not count)" if _is_whole(check) and is_hidden else ""
    return failed(f"missing {show(lacking, 120)}{note} in {show(context.value)}")


def _any(check: Check, context: MatchContext, folds: bool = False) -> CheckResult:
    parts = _parts(check, context.value, folds)
    if isinstance(parts, CheckResult):
        return parts
    there, lacking = parts
    if there:
        return CheckResult(True, reason=f"found {show(there, 120)}")
    return failed(f"found none of {show(lacking, 120)} in {show(context.value)}")


def _regex(check: Check, context: MatchContext) -> CheckResult:
    if not isinstance(check.expected, str):
        return bad_option("expected", "a regular expression", check.expected)
    flags = re.IGNORECASE if check.options.get("case_sensitive") is False else 0
    try:
        found = search(check.expected, text_of(context.value), flags)
    except BadPattern as error:
        return unscored(str(error))
    return PASSED if found else failed(f"expected a match of {show(check.expected)} in {show(context.value)}")


def _normalised(check: Check, context: MatchContext) -> CheckResult:
    if check.expected is None:
        return bad_option("expected", "a text", check.expected)
    expected, value = text_of(check.expected), text_of(context.value)
    if prepared(check, expected, always=True) == prepared(check, value, always=True):
        return PASSED
    return failed(f"expected {show(expected)} but for its way of writing, got {show(value)}")


MATCHERS = (
    Matcher("contains", "the text stands in the output", _contains),
    Matcher("icontains", "the same, upper or lower case", _icontains),
    Matcher("contains_all", "every text of a list stands in the output", _all),
    Matcher("contains_any", "at least one text of a list does", _any),
    Matcher("icontains_all", "every text, upper or lower case", partial(_all, folds=True)),
    Matcher("icontains_any", "at least one text, upper or lower case", partial(_any, folds=True)),
    Matcher("starts_with", "the output begins with the text", _starts_with),
    Matcher("ends_with", "the output ends with the text", _ends_with),
    Matcher("regex", "a regular expression is found in the output", _regex),
    Matcher("normalised", "equal but for width, case, blanks and the way numbers are written", _normalised),
)
