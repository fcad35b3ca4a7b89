"""Texts that must stand in the output, at its beginning, at its end, or match a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from evalloom.matchers.matcher import PASSED, Grade, Matcher, Seen, bad_option, failed, show, text_of, unscored
from evalloom.matchers.normalise import prepared
from evalloom.matchers.patterns import BadPattern, search
from evalloom.matchers.structural import Rules, as_compared, compare, verdict_of
from evalloom.model import Check

_LENIENT = Rules(has_patterns=False, relative=0.0)


def _contains(check: Check, seen: Seen) -> Grade:
    expected, value = check.expected, seen.value
    if type(expected) is str and type(value) is str and not check.options:
        return PASSED if expected in value else failed(f"expected {show(expected)} in {show(value)}")
    if expected is None:
        return bad_option("expected", "a text", expected)
    if isinstance(expected, dict | list):
        return _holds(expected, as_compared(value, expected))
    return _text_check(check, seen, str.__contains__, "{} in {}")


def _holds(expected: Any, value: Any) -> Grade:
    """An object in an object is a subset; anything in a list is one of its elements."""
    if isinstance(expected, dict) and isinstance(value, dict):
        return verdict_of(compare(expected, value, _LENIENT).mismatches)
    wanted = expected if isinstance(expected, list) else [expected]
    given = value if isinstance(value, list) else [value]
    lacking = [item for item in wanted if not any(_is_same(item, other) for other in given)]
    return failed(f"missing {show(lacking, 120)} in {show(value)}") if lacking else PASSED


def _is_same(expected: Any, value: Any) -> bool:
    return not compare(expected, value, _LENIENT).mismatches


def _text_check(check: Check, seen: Seen, holds: Callable[[str, str], bool], what: str) -> Grade:
    if check.expected is None or isinstance(check.expected, dict | list):
        return bad_option("expected", "a text", check.expected)
    expected, value = text_of(check.expected), text_of(seen.value)
    if holds(prepared(check, value), prepared(check, expected)):
        return PASSED
    return failed("expected " + what.format(show(expected), show(value)))


def _icontains(check: Check, seen: Seen) -> Grade:
    return _text_check(check, seen, lambda text, part: part.casefold() in text.casefold(), "{} in {}, in any case")


def _starts_with(check: Check, seen: Seen) -> Grade:
    return _text_check(check, seen, str.startswith, "{} at the beginning of {}")


def _ends_with(check: Check, seen: Seen) -> Grade:
    return _text_check(check, seen, str.endswith, "{} at the end of {}")


def _parts(check: Check, value: Any, folds: bool) -> tuple[list[str], list[str]] | None:
    """The wanted texts that stand in the value and those that do not; None when no texts are wanted."""
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or any(part is None or isinstance(part, dict | list) for part in wanted):
        return None
    text = prepared(check, text_of(value))
    text = text.casefold() if folds else text
    there: list[str] = []
    lacking: list[str] = []
    for part in map(text_of, wanted):
        looked_for = prepared(check, part)
        (there if (looked_for.casefold() if folds else looked_for) in text else lacking).append(part)
    return there, lacking


def _all(check: Check, seen: Seen, folds: bool = False) -> Grade:
    parts = _parts(check, seen.value, folds)
    if parts is None:
        return bad_option("expected", "a list of texts", check.expected)
    _, lacking = parts
    return failed(f"missing {show(lacking, 120)} in {show(seen.value)}") if lacking else PASSED


def _any(check: Check, seen: Seen, folds: bool = False) -> Grade:
    parts = _parts(check, seen.value, folds)
    if parts is None:
        return bad_option("expected", "a list of texts", check.expected)
    there, lacking = parts
    if there:
        return Grade(True, reason=f"found {show(there, 120)}")
    return failed(f"found none of {show(lacking, 120)} in {show(seen.value)}")


def _iall(check: Check, seen: Seen) -> Grade:
    return _all(check, seen, folds=True)


def _iany(check: Check, seen: Seen) -> Grade:
    return _any(check, seen, folds=True)


def _regex(check: Check, seen: Seen) -> Grade:
    if not isinstance(check.expected, str):
        return bad_option("expected", "a regular expression", check.expected)
    flags = re.IGNORECASE if check.options.get("case_sensitive") is False else 0
    try:
        found = search(check.expected, text_of(seen.value), flags)
    except BadPattern as fault:
        return unscored(str(fault))
    return PASSED if found else failed(f"expected a match of {show(check.expected)} in {show(seen.value)}")


def _normalised(check: Check, seen: Seen) -> Grade:
    if check.expected is None:
        return bad_option("expected", "a text", check.expected)
    expected, value = text_of(check.expected), text_of(seen.value)
    if prepared(check, expected, always=True) == prepared(check, value, always=True):
        return PASSED
    return failed(f"expected {show(expected)} but for its way of writing, got {show(value)}")


MATCHERS = (
    Matcher("contains", "the text stands in the output", _contains),
    Matcher("icontains", "the same, upper or lower case", _icontains),
    Matcher("contains_all", "every text of a list stands in the output", _all),
    Matcher("contains_any", "at least one text of a list does", _any),
    Matcher("icontains_all", "every text, upper or lower case", _iall),
    Matcher("icontains_any", "at least one text, upper or lower case", _iany),
    Matcher("starts_with", "the output begins with the text", _starts_with),
    Matcher("ends_with", "the output ends with the text", _ends_with),
    Matcher("regex", "a regular expression is found in the output", _regex),
    Matcher("normalised", "equal but for width, case, blanks and the way numbers are written", _normalised),
)
