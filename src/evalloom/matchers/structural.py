"""Comparing structures: every mismatch with its path, at any depth, leniently or strictly."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from evalloom.core.model import ABSENT, NO_USAGE, Check, Mismatch, Path, show_path
from evalloom.core.patterns import BadPattern, search
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    Matcher,
    Services,
    bad_option,
    composed,
    number_of,
    prepared,
    show,
    text_of,
    unscored,
)
from evalloom.matchers.where import parsed_object

_NOTHING: Any = object()
_RELATIVE = 1e-9
_Trail = tuple[Any, ...]
"""A path as links `(trail before, step)`, written out only for mismatches, so that deep values take linear time."""


class CompareRules(Struct, frozen=True):
    """How two structures are compared (PIPE-10)."""

    strict: bool = False
    tolerance: float = 0.0
    ignore: frozenset[str] = frozenset()
    has_patterns: bool = True
    relative: float = _RELATIVE


LENIENT = CompareRules(has_patterns=False, relative=0.0)


class Meaning(Struct, frozen=True):
    """A place where an expected text begins with `semantic:`, which only a model can compare."""

    path: str
    expected: str
    actual: Any


class Compared(Struct, frozen=True):
    """The mismatches of a comparison, and the meanings that a model must compare."""

    mismatches: list[Mismatch]
    meanings: list[Meaning]


def compare(expected: Any, actual: Any, rules: CompareRules) -> Compared:
    """Everything that differs. Walks with a list of its own, since values may be deeper than Python's stack."""
    compared = Compared([], [])
    waiting: list[tuple[_Trail, Any, Any]] = [((), expected, actual)]
    while waiting:
        trail, wanted, actual = waiting.pop()
        if isinstance(wanted, dict) and isinstance(actual, dict):
            waiting += reversed(_fields(trail, wanted, actual, rules))
        elif isinstance(wanted, list | tuple) and isinstance(actual, list | tuple):
            pairs = zip_longest(wanted, actual, fillvalue=_NOTHING)
            waiting += reversed([((trail, at), *pair) for at, pair in enumerate(pairs)])
        elif not _leaf_holds(wanted, actual, rules, trail, compared):
            sides = (ABSENT if side is _NOTHING else side for side in (wanted, actual))
            compared.mismatches.append(Mismatch(_written(trail), *sides))
    return compared


def _fields(trail: _Trail, wanted: Any, actual: Any, rules: CompareRules) -> list[tuple[_Trail, Any, Any]]:
    ignore = rules.ignore
    pairs = [((trail, name), value, actual.get(name, _NOTHING)) for name, value in wanted.items() if name not in ignore]
    if rules.strict:
        pairs += [
            ((trail, name), _NOTHING, value)
            for name, value in actual.items()
            if name not in wanted and name not in ignore
        ]
    return pairs


def _leaf_holds(wanted: Any, actual: Any, rules: CompareRules, trail: _Trail, compared: Compared) -> bool:
    if wanted is _NOTHING or actual is _NOTHING:
        return False
    if isinstance(wanted, str):
        if rules.has_patterns:
            prefix, colon, rest = wanted.partition(":")
            if colon and prefix in ("contains", "regex", "semantic"):
                if rules.strict and not isinstance(actual, str):
                    return False
                return _pattern_holds(prefix, rest, actual, trail, compared)
        return isinstance(actual, str) and wanted == actual
    if isinstance(wanted, bool) or isinstance(actual, bool):
        return wanted is actual
    if isinstance(wanted, int | float) and isinstance(actual, int | float):
        return _numbers_agree(wanted, actual, rules)
    if isinstance(wanted, dict | list | tuple) or isinstance(actual, dict | list | tuple):
        return False
    return type(wanted) is type(actual) and bool(wanted == actual)


def _pattern_holds(prefix: str, rest: str, actual: Any, trail: _Trail, compared: Compared) -> bool:
    if prefix == "contains":
        return rest.strip() in text_of(actual)
    if prefix == "regex":
        return search(rest, text_of(actual))
    compared.meanings.append(Meaning(_written(trail), rest.strip(), actual))
    return True


def _numbers_agree(wanted: float, actual: float, rules: CompareRules) -> bool:
    if wanted == actual or (wanted != wanted and actual != actual):
        return True
    is_rounded = isinstance(wanted, float) or isinstance(actual, float)
    try:
        # A tolerance adds to what rounding allows, or a small one would refuse what none at all lets pass.
        if is_rounded and rules.relative and math.isclose(wanted, actual, rel_tol=rules.relative):
            return True
        return bool(rules.tolerance) and within(wanted, actual, rules.tolerance)
    except OverflowError:
        return False


def within(wanted: float, actual: float, tolerance: float) -> bool:
    """Return whether two numbers differ by at most the tolerance, as written: 1.1 is within 0.1 of 1.0."""
    apart = abs(wanted - actual)
    if isinstance(apart, int) or not math.isclose(apart, tolerance, rel_tol=1e-6):
        return apart <= tolerance
    from decimal import Decimal

    # At the very edge binary fractions would decide by chance.
    return abs(Decimal(repr(wanted)) - Decimal(repr(actual))) <= Decimal(repr(tolerance))


def _written(trail: _Trail) -> str:
    steps: list[str | int] = []
    while trail:
        trail, step = trail
        steps.append(step if isinstance(step, int) else str(step))
    path: Path = tuple(reversed(steps))
    return show_path(path) if path else "$"


def read_rules(check: Check, is_strict: bool, relative: float, has_patterns: bool) -> CompareRules | CheckResult:
    """Return the rules in the options of a check, or why they are invalid."""
    options = check.options
    tolerance = options.get("tolerance") or 0
    ignored = options.get("ignore_fields") or []
    if number_of(tolerance) is None or tolerance < 0:
        return bad_option("tolerance", "a number that is not negative", tolerance)
    if not isinstance(ignored, list | tuple) or not all(isinstance(name, str) for name in ignored):
        return bad_option("ignore_fields", "a list of names", ignored)
    return CompareRules(is_strict, tolerance, frozenset(ignored), has_patterns, relative)


def as_compared(value: Any, expected: Any) -> Any:
    """Parse a text that is JSON, but for reasoning before it, if something other than a text is expected."""
    if isinstance(value, str) and not isinstance(expected, str):
        from evalloom.llms.answer_json import NO_JSON, loads, strip_reasoning

        parsed = loads(value)
        if parsed is NO_JSON:
            parsed = loads(strip_reasoning(value))
        return value if parsed is NO_JSON else parsed
    return value


def verdict_of(mismatches: Iterable[Mismatch]) -> CheckResult:
    """Return a result with all mismatches, whose reason names the first."""
    all_of_them = tuple(mismatches)
    if not all_of_them:
        return PASSED
    first = all_of_them[0]
    place = "" if first.path == "$" else f"{first.path}: "
    more = f" (and {len(all_of_them) - 1} more)" if len(all_of_them) > 1 else ""
    reason = f"{place}expected {_side(first.expected)}, got {_side(first.actual)}{more}"
    return CheckResult(False, reason=reason, mismatches=all_of_them)


def _side(value: Any) -> str:
    return "nothing" if value is ABSENT else show(value)


def _structural(check: Check, context: MatchContext) -> CheckResult | None:
    compared = _compare_by_rules(check, context)
    if isinstance(compared, CheckResult):
        return compared
    return None if compared.meanings else verdict_of(compared.mismatches)


def _compare_by_rules(check: Check, context: MatchContext) -> Compared | CheckResult:
    rules = read_rules(check, check.options.get("strict") is True, _RELATIVE, has_patterns=True)
    if isinstance(rules, CheckResult):
        return rules
    try:
        return compare(check.expected, as_compared(context.value, check.expected), rules)
    except BadPattern as error:
        return unscored(str(error))


async def _ask_structural(check: Check, context: MatchContext, services: Services) -> CheckResult:
    compared = _compare_by_rules(check, context)
    if isinstance(compared, CheckResult):
        return compared
    import asyncio

    from evalloom.matchers.similarity import grade_meaning

    grades = await asyncio.gather(
        *(grade_meaning(check, meaning.expected, meaning.actual, context, services) for meaning in compared.meanings)
    )
    usage = sum((grade.usage for grade in grades), NO_USAGE)
    pairs = list(zip(compared.meanings, grades, strict=True))
    mismatches = [
        Mismatch(meaning.path, f"semantic:{meaning.expected}", meaning.actual)
        for meaning, grade in pairs
        if grade.passed is False
    ]
    unsure = [f"{meaning.path}: {grade.reason}" for meaning, grade in pairs if grade.passed is None]
    result = verdict_of([*compared.mismatches, *mismatches])
    if unsure and result.passed:
        return CheckResult(None, reason="; ".join(unsure), usage=usage)
    return CheckResult(result.passed, reason=result.reason, mismatches=result.mismatches, usage=usage)


def _only_fields(check: Check, context: MatchContext) -> CheckResult:
    names, ignored = check.expected, check.options.get("ignore_fields") or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return bad_option("expected", "a list of names", names)
    if not isinstance(ignored, list | tuple) or not all(isinstance(name, str) for name in ignored):
        return bad_option("ignore_fields", "a list of names", ignored)
    # Plain text is the one field `output`, even if it is JSON.
    value = context.output.value if {*names} <= {"output"} else parsed_object(context.output.value)
    if not isinstance(value, dict):
        return PASSED
    allowed = {*names, *ignored, *(re.split(r"[.\[]", name)[0] for name in names)}
    if "output" in names:
        allowed.add(context.output.plain.removeprefix("output."))
    return verdict_of(Mismatch(str(name), ABSENT, field) for name, field in value.items() if name not in allowed)


def _equals(check: Check, context: MatchContext) -> CheckResult:
    expected, value = check.expected, context.value
    if type(expected) is str and type(value) is str and not check.options:
        return PASSED if value == expected else _texts_differ(expected, value)
    return _equals_by_rules(check, expected, value)


def _equals_by_rules(check: Check, expected: Any, value: Any) -> CheckResult:
    if isinstance(expected, str) and isinstance(value, str):
        same = prepared(check, expected) == prepared(check, value)
        return PASSED if same else _texts_differ(expected, value)
    rules = read_rules(check, is_strict=True, relative=0.0, has_patterns=False)
    if isinstance(rules, CheckResult):
        return rules
    return verdict_of(compare(expected, as_compared(value, expected), rules).mismatches)


def _texts_differ(expected: str, value: str) -> CheckResult:
    reason = f"expected {show(expected)}, got {show(value)}"
    if composed(expected) == composed(value):
        reason += ", with accents composed in another way; normalise: true ignores that"
    return CheckResult(False, reason=reason, mismatches=(Mismatch("$", expected, value),))


def _iequals(check: Check, context: MatchContext) -> CheckResult:
    if check.expected is None:
        return bad_option("expected", "a text", check.expected)
    expected, value = text_of(check.expected), text_of(context.value)
    same = prepared(check, composed(expected)).casefold() == prepared(check, composed(value)).casefold()
    return PASSED if same else _texts_differ(expected, value)


def _one_of(check: Check, context: MatchContext) -> CheckResult:
    choices = check.expected
    if not isinstance(choices, list | tuple) or not choices:
        return bad_option("expected", "a list of values", choices)
    if any(_equals_by_rules(check, choice, context.value).passed for choice in choices):
        return PASSED
    return CheckResult(
        False,
        reason=f"expected one of {show(list(choices), 120)}, got {show(context.value)}",
        mismatches=(Mismatch("$", list(choices), context.value),),
    )


def _has_meaning(expected: Any) -> bool:
    """Whether a text of the structure begins with `semantic:`."""
    if isinstance(expected, str):
        return expected.startswith("semantic:")
    inner = expected.values() if isinstance(expected, dict) else expected if isinstance(expected, list) else ()
    return any(map(_has_meaning, inner))


MATCHERS = (
    Matcher("only_fields", "the output is an object with no other fields than these", _only_fields),
    Matcher("equals", "the same value: texts to the letter, JSON by value", _equals),
    Matcher("iequals", "the same text but for upper and lower case", _iequals),
    Matcher("one_of", "equal to one of a list", _one_of),
    Matcher(
        "structural",
        "the same structure, leniently or strictly, within a tolerance",
        _structural,
        _ask_structural,
        needs=lambda check: "judge_or_embeddings" if _has_meaning(check.expected) else "",
    ),
)
