"""Outputs that must be JSON, hold JSON, fit a schema or be of a type."""

from __future__ import annotations

import builtins
from itertools import islice
from typing import Any

from evalloom.core.json_schema import cut, first_line, validator
from evalloom.core.model import Check, Mismatch, show_path
from evalloom.core.text import type_name
from evalloom.llms.answer_json import NO_JSON, find_json, loads
from evalloom.matchers.base import PASSED, CheckResult, MatchContext, Matcher, bad_option, failed, show, unscored

_MAX_ERRORS = 100
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("str", "string", "text"), (str,)),
    **dict.fromkeys(("int", "integer"), (int,)),
    **dict.fromkeys(("float", "number"), (int, float)),
    **dict.fromkeys(("bool", "boolean"), (bool,)),
    **dict.fromkeys(("list", "array"), (list, tuple)),
    **dict.fromkeys(("dict", "object"), (dict,)),
    **dict.fromkeys(("None", "NoneType", "null"), (type(None),)),
}
_PLAIN = (str, int, float, bool, list, dict, type(None))


def _is_json(check: Check, context: MatchContext) -> CheckResult:
    value = loads(context.value) if isinstance(context.value, str) else context.value
    if value is NO_JSON:
        return failed(f"expected JSON, got {show(context.value)}")
    return PASSED if check.expected is None else _against(check.expected, value)


def _contains_json(check: Check, context: MatchContext) -> CheckResult:
    is_text = isinstance(context.value, str)
    values = [answer.value for answer in find_json(context.value)] if is_text else [context.value]
    if check.options.get("objects") is True:
        values = [item for value in values for item in _objects_in(value)]
    if not values:
        return failed(f"expected JSON in {show(context.value)}")
    if check.expected is None:
        return PASSED
    grades = [_against(check.expected, value) for value in values]
    return next((grade for grade in grades if grade.passed), grades[0])


def _objects_in(value: Any) -> list[Any]:
    """Return a value that is an object, or the outermost objects in a list."""
    if isinstance(value, dict):
        return [value]
    objects: list[Any] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            objects.append(item)
        elif isinstance(item, list):
            waiting += reversed(item)
    return objects


def _json_schema(check: Check, context: MatchContext) -> CheckResult:
    schema, value = check.expected, context.value
    if not isinstance(value, str):
        return _against(schema, value)
    found = loads(value)
    if not _takes_texts(schema):
        is_json = found is not NO_JSON
        return _against(schema, found) if is_json else failed(f"expected JSON that fits the schema, got {show(value)}")
    # The text 123 is a text; one in quotes may be meant as JSON.
    as_text = _against(schema, value)
    is_settled = as_text.passed is not False or found is NO_JSON
    return PASSED if not is_settled and _against(schema, found).passed else as_text


def _takes_texts(schema: Any) -> bool:
    """Return whether a schema explicitly allows a text."""
    if not isinstance(schema, dict):
        return True
    types = schema.get("type")
    if types is not None:
        return "string" in types if isinstance(types, list) else types == "string"
    choices = schema.get("enum")
    texts = [*(choices if isinstance(choices, list) else []), schema.get("const")]
    return any(isinstance(text, str) for text in texts)


def _against(schema: Any, value: Any) -> CheckResult:
    """Check a value against a JSON Schema; each error is a mismatch at its path."""
    if not isinstance(schema, dict | bool):
        return bad_option("expected", "a JSON Schema", schema)
    try:
        fits = validator(schema)
    except (ValueError, TypeError, RecursionError) as error:
        return unscored(f"expected a JSON Schema, got {show(schema)}: {first_line(error)}")
    try:
        if fits.is_valid(value):
            return PASSED
        mismatches = [
            Mismatch(show_path(tuple(error.instance_path)) or "$", error.message, error.instance)
            for error in islice(fits.iter_errors(value), _MAX_ERRORS)
        ]
    except (ValueError, RecursionError) as error:
        return unscored(f"expected JSON, got {show(value)}: {first_line(error)}")
    more = f" (and {len(mismatches) - 1} more)" if len(mismatches) > 1 else ""
    return CheckResult(
        False, reason=f"{mismatches[0].path}: {cut(mismatches[0].expected)}{more}", mismatches=tuple(mismatches)
    )


def _is_instance(check: Check, context: MatchContext) -> CheckResult:
    wanted = check.expected
    if not isinstance(wanted, str):
        return bad_option("expected", "the name of a type", wanted)
    value = context.value
    if wanted in _TYPES:
        is_one = isinstance(value, _TYPES[wanted]) and (not isinstance(value, bool) or wanted in ("bool", "boolean"))
    elif type(value) in _PLAIN and not isinstance(getattr(builtins, wanted, None), type):
        return unscored(f"{wanted}: the class of a value is not kept in the record, which has {type_name(value)}")
    else:
        is_one = any(wanted in (base.__name__, base.__qualname__) for base in type(value).__mro__)
    return PASSED if is_one else failed(f"expected {wanted}, got {type_name(value)}: {show(value)}")


MATCHERS = (
    Matcher("is_json", "the output is JSON; with an expected schema, JSON that fits it", _is_json),
    Matcher("contains_json", "the output holds JSON, in a fence or among prose", _contains_json),
    Matcher("json_schema", "the output is JSON that fits a schema", _json_schema),
    Matcher("is_instance", "the output is of a JSON or Python type", _is_instance),
)
