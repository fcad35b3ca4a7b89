"""Numbers that are expected or bounded: a number in the output, its length, and what the run took."""

from __future__ import annotations

import math
import re
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Usage
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    failed,
    number_of,
    show,
    text_of,
    unscored,
)
from evalloom.matchers.normalise import in_plain_digits, numerals_in
from evalloom.matchers.overlap import words_of
from evalloom.matchers.structural import within

_NAME = lazy_pattern(r"(?<!\w)[^\W\d_]\w*(?:-\w+(?:\.\w+)*)+")
"""A word joined to a number: the 4 of GPT-4 is not a number."""
_NUMBER = lazy_pattern(r"(?<![\w.])[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?(?![\d])", re.IGNORECASE)
_FULL_WIDTH = str.maketrans("０１２３４５６７８９．，－＋", "0123456789.,-+")
_UNITS = ("characters", "words", "items")
_OUTSIDE = ("http", "command")
"""The trace entries of targets that do their work in another process or on another machine."""


def numbers_in(text: str) -> list[float]:
    """Return the numbers of a text, with or without thousands separators; Chinese numerals if it has no others."""
    plain = in_plain_digits(text.translate(_FULL_WIDTH).replace("−", "-"))
    # A letter before a number makes it part of a name (GPT4); a Chinese character does not.
    plain = _NAME.sub(" ", re.sub(r"([^\x00-\u024f])", r" \1 ", plain))
    found = [value for number in _NUMBER.findall(plain) if math.isfinite(value := float(number))]
    # Beside digits, 一 and 十 mostly belong to words: 一切, 唯一, 十分.
    return found or numerals_in(text)


def _number_from(value: Any, pick: str) -> float | None:
    if isinstance(value, str):
        found = numbers_in(value)
        return found[0 if pick == "first" else -1] if found else None
    return number_of(value)


def _numeric(check: Check, context: MatchContext) -> CheckResult:
    options = check.options
    pick = options.get("pick", "last")
    if pick not in ("first", "last"):
        return bad_option("pick", "first or last", pick)
    bounds = {name: options.get(name, 0) or 0 for name in ("tolerance", "relative")}
    for name, bound in bounds.items():
        if number_of(bound) is None or bound < 0:
            return bad_option(name, "a number that is not negative", bound)
    found = _number_from(context.value, pick)
    if found is None:
        return failed(f"expected a number, got {show(context.value)}")
    if check.expected is None or isinstance(check.expected, dict):
        return _within_bounds(check, found, "the number")
    wanted = _number_from(check.expected, "last")
    if wanted is None:
        return bad_option("expected", "a number", check.expected)
    if _is_near(wanted, found, bounds["tolerance"], bounds["relative"]):
        return PASSED
    margins = [f"{bounds['tolerance']:g}"] if bounds["tolerance"] else []
    margins += [f"{bounds['relative']:.3g} of it"] if bounds["relative"] else []
    allowed = f" ± {' or '.join(margins)}" if margins else ""
    return failed(f"expected {wanted:g}{allowed}, got {found:.12g}")


def _is_near(wanted: float, actual: float, tolerance: float, relative: float) -> bool:
    try:
        if math.isclose(wanted, actual, rel_tol=1e-9):
            return True
        return within(wanted, actual, max(tolerance, relative * abs(wanted)))
    except OverflowError:
        return wanted == actual


def _bounds(check: Check) -> tuple[float | None, float | None] | CheckResult:
    """Return the bounds `min` and `max`, from the options or from `expected`; a single number is both."""
    expected = check.expected
    if expected is not None and not isinstance(expected, dict):
        exact = number_of(expected)
        return bad_option("expected", "a number or min and max", expected) if exact is None else (exact, exact)
    written = {**check.options, **(expected or {})}
    least, most = written.get("min"), written.get("max")
    for name, bound in (("min", least), ("max", most)):
        if bound is not None and number_of(bound) is None:
            return bad_option(name, "a number", bound)
    if least is None and most is None:
        return unscored("expected a number, min or max, got none")
    return least, most


def _within_bounds(check: Check, actual: float, what: str) -> CheckResult:
    bounds = _bounds(check)
    if isinstance(bounds, CheckResult):
        return bounds
    least, most = bounds
    if least is not None and actual < least:
        return failed(f"expected {what} to be at least {least:g}, got {actual:g}")
    if most is not None and actual > most:
        return failed(f"expected {what} to be at most {most:g}, got {actual:g}")
    return PASSED


def _length(check: Check, context: MatchContext) -> CheckResult:
    value = context.value
    unit = check.options.get("unit") or ("items" if isinstance(value, list | tuple | dict) else "characters")
    if unit not in _UNITS:
        return bad_option("unit", "characters, words or items", unit)
    if unit == "items" and not isinstance(value, list | tuple | dict):
        return failed(f"expected a list or an object, got {show(value)}")
    return _within_bounds(check, _count(value, unit), f"the number of {unit}")


def _count(value: Any, unit: str) -> int:
    if unit == "items":
        return len(value)
    text = text_of(value)
    return len(words_of(text)) if unit == "words" else len(text)


def _word_count(check: Check, context: MatchContext) -> CheckResult:
    return _within_bounds(check, _count(context.value, "words"), "the number of words")


def _at_most(check: Check, actual: float, unit: str) -> CheckResult:
    written = check.options.get("threshold", check.expected)
    limit = number_of(written)
    if limit is None:
        return bad_option("threshold", f"a number of {unit}", written)
    if actual <= limit:
        return CheckResult(True, reason=f"{actual:.6g} {unit}")
    return failed(f"expected at most {limit:g} {unit}, got {actual:.6g}")


def _latency(check: Check, context: MatchContext) -> CheckResult:
    if context.usage.cached:
        return unscored("the answer came from the cache, so its time says nothing; run with --no-cache")
    return _at_most(check, context.duration_s * 1000, "ms")


def _why_unknown(context: MatchContext) -> str:
    """Return why the usage of a run is unknown, or an empty text. A limit must not pass because numbers are missing."""
    usage = context.usage
    if usage.cached:
        return "the answer came from the cache, so nothing was spent on it; run with --no-cache"
    if usage.calls and not usage.tokens and not usage.cost:
        return "the llm reported no tokens"
    # A run without calls used nothing, unless the work was done where evalloom cannot count it.
    if not usage.calls and not usage.tokens and any(entry.get("type") in _OUTSIDE for entry in context.trace):
        return "the target called no llm through evalloom, so what it used is not known"
    return ""


def _tokens(check: Check, context: MatchContext) -> CheckResult:
    usage = context.usage
    if why := _why_unknown(context) or ("the llm reported no tokens" if usage.cost and not usage.tokens else ""):
        return unscored(why)
    return _at_most(check, usage.tokens, f"tokens{_estimate_note(usage)}")


def _cost(check: Check, context: MatchContext) -> CheckResult:
    if context.usage.unpriced:
        return unscored("the price of the llm is not known; give it under prices: in evalloom.yaml")
    if why := _why_unknown(context):
        return unscored(why)
    return _at_most(check, context.usage.cost, f"of cost{_estimate_note(context.usage)}")


def _estimate_note(usage: Usage) -> str:
    return " (estimated: the server sent no usage)" if usage.estimated else ""


MATCHERS = (
    Matcher("numeric", "a number, also one inside a text, within a tolerance or between min and max", _numeric),
    Matcher("length", "as many characters, words or items as min and max say", _length),
    Matcher("word_count", "as many words as min and max say; a Chinese character counts as one", _word_count),
    Matcher("latency", "the run took at most this many milliseconds", _latency),
    Matcher("tokens", "the run took at most this many tokens", _tokens),
    Matcher("cost", "the run cost at most this much", _cost),
)
