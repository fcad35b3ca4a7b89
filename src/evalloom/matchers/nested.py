"""The check `json_path`: finds parts of a JSON output, and applies another check to each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import NO_USAGE, Check, Mismatch
from evalloom.llms.answer_json import NO_JSON, loads, object_in
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    Matcher,
    Services,
    bad_option,
    failed,
    show,
    unscored,
)
from evalloom.matchers.negation import negate

_STEP = lazy_pattern(r"\.?(?P<name>[^.\[\]*'\"]+)|\[(?P<number>-?\d{1,18})\]|\[\*\]|\.\*|\[(['\"])(?P<quoted>.*?)\3\]")


class BadPath(Exception):
    """A path cannot be parsed; the message shows what it should look like."""


def find_all(path: str, value: Any) -> list[tuple[str, Any]]:
    """Return every place that a path like `$.items[*].price` matches, with its value. Raises BadPath."""
    rest = path.strip().removeprefix("$")
    places = [("$", value)]
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise BadPath(f"expected a path such as $.items[*].price or $.items[0], got {show(path)}")
        places = [inner for place, outer in places for inner in _inside(place, outer, step)]
        rest = rest[step.end() :]
    return places


def _inside(place: str, value: Any, step: re.Match[str]) -> list[tuple[str, Any]]:
    name = step["name"] or step["quoted"]
    if name is not None:
        return [(f"{place}.{name}", value[name])] if isinstance(value, dict) and name in value else []
    if step["number"] is not None:
        at = int(step["number"])
        in_range = isinstance(value, list) and -len(value) <= at < len(value)
        return [(f"{place}[{at}]", value[at])] if in_range else []
    if isinstance(value, list):
        return [(f"{place}[{at}]", item) for at, item in enumerate(value)]
    return [(f"{place}.{key}", item) for key, item in value.items()] if isinstance(value, dict) else []


def json_path(by_kind: Callable[[str], Matcher | None], parse: Callable[[Any], Check]) -> Matcher:
    """Return the matcher that applies a further check, of a kind that `by_kind` finds, to each place of a path."""

    def resolve(check: Check, context: MatchContext) -> tuple[Matcher, Check, list[tuple[str, Any]]] | CheckResult:
        try:
            places = _places(check, context.value)
        except BadPath as error:
            return unscored(str(error))
        if not places:
            return failed(f"{check.expected}: is not there in {show(context.value)}")
        written = check.options.get("check")
        if written is None:
            return PASSED
        try:
            further = written if isinstance(written, Check) else parse(written)
        except EvalloomError as error:
            return unscored(str(error))
        matcher = by_kind(further.kind)
        if matcher is None:
            return unscored(f"check: expected a known kind, got {further.kind!r}")
        return matcher, further, places

    def grade(check: Check, context: MatchContext) -> CheckResult | None:
        resolved = resolve(check, context)
        if isinstance(resolved, CheckResult):
            return resolved
        matcher, further, places = resolved
        if matcher.grade is None:
            return None
        grades = [matcher.grade(further, _with_value(context, value)) for _, value in places]
        ready = [result for result in grades if result is not None]
        return _combine(check, further, places, ready) if len(ready) == len(grades) else None

    async def ask(check: Check, context: MatchContext, services: Services) -> CheckResult:
        resolved = resolve(check, context)
        if isinstance(resolved, CheckResult):
            return resolved
        matcher, further, places = resolved
        assert matcher.ask is not None
        grades = await asyncio.gather(
            *(matcher.ask(further, _with_value(context, value), services) for _, value in places)
        )
        return _combine(check, further, places, grades)

    return Matcher("json_path", "a place of the JSON output exists, or passes a further check", grade, ask)


def _places(check: Check, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(check.expected, str):
        raise BadPath(f"expected a path such as $.items[*].price, got {show(check.expected)}")
    if isinstance(value, str):
        parsed = loads(value)
        value = object_in(value) if parsed is NO_JSON else parsed
    return find_all(check.expected, value)


def _with_value(context: MatchContext, value: Any) -> MatchContext:
    return MatchContext(value, context.output, context.case, context.duration_s, context.usage, context.trace)


def _combine(check: Check, further: Check, places: list[tuple[str, Any]], grades: list[CheckResult]) -> CheckResult:
    """Combine the results: all places must pass, or with `match: any` one of them."""
    match = check.options.get("match", "all")
    if match not in ("all", "any"):
        return bad_option("match", "all or any", match)
    usage = sum((grade.usage for grade in grades), NO_USAGE)
    results = [
        (place, value, negate(further, value, grade)) for (place, value), grade in zip(places, grades, strict=True)
    ]
    bad = [result for result in results if result[2].passed is False]
    unsure = [result for result in results if result[2].passed is None]
    if (match == "any" and any(grade.passed for _, _, grade in results)) or not (bad or unsure):
        return CheckResult(True, usage=usage)
    place, _, grade = unsure[0] if unsure and (match == "any" or not bad) else bad[0]
    # The mismatches of a negated check would say that a value was expected which was not.
    is_plain = grade.passed is False and further.options.get("negate") is not True
    mismatches = tuple(Mismatch(place, further.expected, value) for place, value, _ in bad) if is_plain else ()
    return CheckResult(grade.passed, reason=f"{place}: {grade.reason}", mismatches=mismatches, usage=usage)
