"""Scores test points by rules, without a judge; the reason quotes the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from evalloom.core import expressions, patterns
from evalloom.core import json_schema as schema
from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Check, Output, Record
from evalloom.core.text import type_name
from evalloom.llms.answer_json import NO_JSON, find_json, loads
from evalloom.matchers import by_kind
from evalloom.matchers.base import MatchContext, show, text_of
from evalloom.matchers.nested import BadPath, find_all
from evalloom.prompt_eval.citing import cites
from evalloom.prompt_eval.plan import ScoringRule, TestPlan, TestPoint
from evalloom.prompt_eval.scores import BEST_SCORE, Mark


class RuleUndecided(Exception):
    """A rule cannot decide whether it holds; the message gives the reason."""


def score_by_rules(point: TestPoint, case: Record, result: str) -> Mark:
    """Score a test point by its rules: 3 if all hold, else the lowest `otherwise` of a broken rule."""
    names = {**case, "output": _json_in(result)}
    score = BEST_SCORE
    holding: list[str] = []
    broken: list[str] = []
    for rule in point.rules:
        if rule.when and not expressions.compile(rule.when).holds(names):
            holding.append(f"{_label(rule)}: asks nothing of this case ({rule.when})")
            continue
        try:
            holds, detail = _hold(rule, result)
        except RuleUndecided as error:
            return Mark(None, f"{_label(rule)}: {error}")
        (holding if holds else broken).append(f"{_label(rule)}: {detail}")
        score = score if holds else min(score, rule.otherwise)
    reason = "; ".join(broken or holding)
    if not cites(reason, result):
        reason += f"; the output begins {show(result, 40)}" if result.strip() else "; the output is empty"
    return Mark(score, reason)


def validate_rules(plan: TestPlan) -> None:
    """Raise on rules that can never apply, such as an invalid schema or language, before any call is paid for."""
    for point in plan.points:
        for rule in point.rules:
            try:
                _KINDS[rule.kind](rule.value, "")
                find_all(rule.path, {})
            except (RuleUndecided, BadPath) as error:
                raise usage_error(
                    "bad_rule", f"{plan.path.as_posix()}: {point.id}: rule: {rule.kind}: {error}"
                ) from None


def unused_rules(plan: TestPlan, records: Iterable[tuple[Record, str]]) -> list[str]:
    """Return the rules whose `when` holds for none of these cases and outputs: their 3 means nothing."""
    names = [{**case, "output": _json_in(result)} for case, result in records]
    return [
        f"{point.id}: rule {_label(rule)}: applies to no case: {rule.when}"
        for point in plan.points
        for rule in point.rules
        if rule.when and names and not any(map(expressions.compile(rule.when).holds, names))
    ]


def _label(rule: ScoringRule) -> str:
    return f"{rule.kind} of {rule.path}" if rule.path else rule.kind


def _hold(rule: ScoringRule, result: str) -> tuple[bool, str]:
    """Whether a rule holds for every value at its path, and an explanation."""
    if not rule.path:
        return _KINDS[rule.kind](rule.value, result)
    document = _json_in(result)
    if document is None:
        return False, f"the output is not JSON: {show(result)}"
    places = find_all(rule.path, document)
    if not places:
        return False, f"is missing in {show(result)}"
    checked = [(place, *_KINDS[rule.kind](rule.value, value)) for place, value in places]
    broken = [f"{place}: {detail}" if len(checked) > 1 else detail for place, holds, detail in checked if not holds]
    if broken:
        return False, ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
    return True, checked[0][2] + (f" (also in {len(checked) - 1} more places)" if len(checked) > 1 else "")


def _json_in(result: str) -> Any:
    """Return the JSON in an output, also inside a fence or prose; json_valid checks that it stands alone."""
    return next((answer.value for answer in find_json(result) if isinstance(answer.value, dict | list)), None)


# -- one function per kind: takes the rule's argument and a value, returns whether it holds and why -----


def _json_valid(wanted: Any, value: Any) -> tuple[bool, str]:
    if isinstance(value, str) and loads(value) is NO_JSON:
        return False, f"expected JSON and nothing else, got {show(value)}"
    return True, "it is JSON"


def _json_schema(wanted: Any, value: Any) -> tuple[bool, str]:
    try:
        validator = schema.validator(wanted)
    except (TypeError, ValueError, RecursionError) as error:
        raise RuleUndecided(f"is not a JSON Schema: {schema.first_line(error)}") from None
    document = loads(value) if isinstance(value, str) else value
    if document is NO_JSON:
        document = _json_in(value)
        if document is None:
            return False, f"the output is not JSON: {show(value)}"
    wrong = next(validator.iter_errors(document), None)
    if wrong is None:
        return True, "it fits the schema"
    where = ".".join(str(step) for step in wrong.instance_path)
    return False, f"{f'{where}: ' if where else ''}{schema.cut(wrong.message)}"


def _required_keys(wanted: list[str], value: Any) -> tuple[bool, str]:
    found = _json_in(value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        return False, f"expected an object, got {show(value) if found is None else type_name(found)}"
    missing = [key for key in wanted if key not in found]
    if missing:
        return False, f"{', '.join(missing)} missing; there are {', '.join(found) or 'no keys'}"
    return True, f"{', '.join(wanted)} are there"


def _allowed_values(wanted: list[Any], value: Any) -> tuple[bool, str]:
    values = value if isinstance(value, list) else [value.strip() if isinstance(value, str) else value]
    if isinstance(value, str) and value.strip() not in wanted and loads(value) is not NO_JSON:
        values = [loads(value)]  # The output `1` may be meant as a number.
    # True equals 1 in Python, but not in JSON.
    allowed = [(type(one) is bool, one) for one in wanted]
    others = [one for one in values if (type(one) is bool, one) not in allowed]
    if others:
        return False, f"expected one of {', '.join(map(show, wanted))}, got {', '.join(map(show, others))}"
    return True, f"{show(value)} is allowed"


def _max_chars(wanted: int, value: Any) -> tuple[bool, str]:
    count = len(text_of(value))
    return count <= wanted, f"{count} characters, at most {wanted} allowed: {show(value)}"


def _min_chars(wanted: int, value: Any) -> tuple[bool, str]:
    count = len(text_of(value))
    return count >= wanted, f"{count} characters, at least {wanted} wanted: {show(value)}"


def _regex(wanted: str, value: Any) -> tuple[bool, str]:
    try:
        has_match = patterns.search(wanted, text_of(value))
    except patterns.BadPattern as error:
        raise RuleUndecided(str(error)) from None
    return has_match, f"{wanted!r} is {'found' if has_match else 'not found'} in {show(value)}"


def _not_regex(wanted: str, value: Any) -> tuple[bool, str]:
    has_match, detail = _regex(wanted, value)
    return not has_match, detail


def _contains(wanted: str | list[str], value: Any) -> tuple[bool, str]:
    missing = [text for text in _listed(wanted) if text not in text_of(value)]
    if missing:
        return False, f"{', '.join(map(show, missing))} missing in {show(value)}"
    return True, f"{', '.join(map(show, _listed(wanted)))} found in {show(value)}"


def _not_contains(wanted: str | list[str], value: Any) -> tuple[bool, str]:
    forbidden = [text for text in _listed(wanted) if text in text_of(value)]
    if forbidden:
        return False, f"{', '.join(map(show, forbidden))} found in {show(value)}"
    return True, f"none of {', '.join(map(show, _listed(wanted)))} in {show(value)}"


def _listed(wanted: str | list[str]) -> list[str]:
    return [wanted] if isinstance(wanted, str) else wanted


def _language(wanted: str, value: Any) -> tuple[bool, str]:
    matcher = by_kind("language")
    assert matcher is not None and matcher.grade is not None
    grade = matcher.grade(Check("language", wanted), MatchContext(value, Output(value), Case("", {})))
    assert grade is not None
    if grade.passed is None:
        raise RuleUndecided(grade.reason)
    return grade.passed, grade.reason or f"{show(value)} is in {wanted}"


def _not_empty(wanted: Any, value: Any) -> tuple[bool, str]:
    has_content = bool(value.strip() if isinstance(value, str) else value)
    return has_content, f"{show(value)} is {'not ' if has_content else ''}empty"


_KINDS: dict[str, Callable[[Any, Any], tuple[bool, str]]] = {
    "json_valid": _json_valid,
    "json_schema": _json_schema,
    "required_keys": _required_keys,
    "allowed_values": _allowed_values,
    "max_chars": _max_chars,
    "min_chars": _min_chars,
    "regex": _regex,
    "not_regex": _not_regex,
    "contains": _contains,
    "not_contains": _not_contains,
    "language": _language,
    "not_empty": _not_empty,
}
