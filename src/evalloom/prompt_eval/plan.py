"""Test plans: the test points that a prompt is scored on, and the number of cases of each category (EVAL-3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.core import expressions
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding, Origin, Record, Remark, error, warning
from evalloom.core.model import Path as Where
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.prompt_eval.dialect import CATEGORIES, EVAL_TYPES, FIELDS, SUBCATEGORIES

CRITICALITIES = ("core", "supporting", "baseline")
SAFETY = "TP_safety"
SCORES = (1, 2, 3)
MAX_CASES = 10_000
"""The maximum number of cases of one category; a larger number is a typing error."""
_POINT_ID = lazy_pattern(r"TP[1-9][0-9]*|TP_qualitative_\w+|TP_safety")
_PROMPT_LINE = lazy_pattern(r"^prompt:.*\n?(?:[ \t]+.*\n?|\n(?=[ \t]))*", re.MULTILINE)
_PLAN_KEYS = ("prompt", "yardstick", "test_points", "dimensions", "floors")
_DESCRIPTIVE_KEYS = ("title", "description", "version", "notes", "author", "language")
_POINT_KEYS = ("id", "name", "type", "criticality", "anchors", "rule", "description", "notes")
_RULE_OPTIONS = ("path", "otherwise", "when")


class ScoringRule(Struct, frozen=True):
    """A condition on the output; an output that does not meet it gets the score `otherwise` on the test point."""

    kind: str
    value: Any = None
    path: str = ""
    """The path of the checked part of a JSON output; empty for the whole output."""
    otherwise: int = 1
    when: str = ""
    """An expression about the case; if it is false, the rule does not apply."""


class TestPoint(Struct, frozen=True):
    """One aspect that a prompt is scored on, and what the scores 1, 2 and 3 mean."""

    __test__ = False  # Otherwise pytest collects it as a test class.

    id: str
    name: str
    type: str = "quantitative"
    criticality: str = "supporting"
    anchors: dict[int, str] = {}
    rules: tuple[ScoringRule, ...] = ()
    """A test point with rules is scored without a model."""

    @property
    def is_core(self) -> bool:
        return self.criticality == "core"


class TestPlan(Struct, frozen=True):
    """The content of a plan file. `points` are in the order of the table: TP_safety last."""

    __test__ = False

    points: tuple[TestPoint, ...]
    dimensions: dict[str, int] = {}
    floors: dict[str, int] = {}
    """The minimum number of cases of each safety subcategory."""
    prompt: str = ""
    yardstick: str = ""
    """The prompt that the evaluator sees, if it is not the one under test."""
    path: Path = Path("test_plan.yaml")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(point.id for point in self.points)

    @property
    def judged(self) -> tuple[TestPoint, ...]:
        """The test points that only a judge can score."""
        return tuple(point for point in self.points if not point.rules)


def safety_last(ids: list[str]) -> list[str]:
    """Return the ids of test points in the order of the table: TP_safety last (EVAL-11)."""
    return [point for point in ids if point != SAFETY] + [SAFETY] * (SAFETY in ids)


def read_plan(path: Path) -> tuple[TestPlan | None, list[Finding]]:
    """Read a plan file; return the plan, or None if it has errors, and all findings."""
    items = list(RowReader(source_of(path)))
    rows = [item for item in items if isinstance(item, Row)]
    findings = [
        Finding(item.code, item.severity, item.message, Origin(path.as_posix(), *item.place))
        for item in items
        if isinstance(item, Problem)
    ]
    if len(rows) != 1 or not isinstance(rows[0].value, dict):
        if not findings:
            message = "expected one object with prompt, test_points and dimensions"
            findings.append(Finding("bad_plan", "error", message, Origin(path.as_posix())))
        return None, findings
    row = rows[0]
    for remark in plan_remarks(row.value):
        origin = Origin(path.as_posix(), *row.place_of(remark.path))
        field = str(remark.path[-1]) if remark.path else ""
        findings.append(Finding(remark.code, remark.severity, remark.message, origin, field))
    has_errors = any(finding.severity == "error" for finding in findings)
    return None if has_errors else plan_of(row.value, path), findings


def replace_prompt(text: str, prompt: str) -> str:
    """Set the prompt file in the text of a plan, and leave everything else unchanged.

    The text is not parsed. YAML has many ways to write a key, so callers parse the result to check it.
    """
    line = f"prompt: {json.dumps(prompt, ensure_ascii=False)}\n"
    replaced, count = _PROMPT_LINE.subn(lambda _: line, text, count=1)
    return replaced if count else line + text


def plan_of(record: Record, path: Path = Path("test_plan.yaml")) -> TestPlan:
    """Build the plan from a record without errors."""
    points = {str(point["id"]): _build_point(point) for point in record["test_points"]}
    return TestPlan(
        points=tuple(points[point_id] for point_id in safety_last(list(points))),
        dimensions={name: record["dimensions"][name] for name in CATEGORIES if record["dimensions"].get(name)},
        floors=dict(record.get("floors") or {}),
        prompt=record.get("prompt") or "",
        yardstick=record.get("yardstick") or "",
        path=path,
    )


def _build_point(point: Record) -> TestPoint:
    default_type = "qualitative" if point["id"].startswith("TP_qualitative_") else "quantitative"
    if point["id"] == SAFETY:
        default_type = "safety"
    return TestPoint(
        id=point["id"],
        name=point["name"].strip(),
        type=point.get("type") or default_type,
        criticality=point["criticality"],
        anchors={int(score): str(text).strip() for score, text in (point.get("anchors") or {}).items()},
        rules=tuple(_build_rule(rule) for rule in rule_list(point.get("rule"))),
    )


def rule_list(value: Any) -> list[Any]:
    """Return the rules of a test point: a single rule becomes a list of one, and no rule an empty list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _build_rule(rule: str | Record) -> ScoringRule:
    if isinstance(rule, str):
        return ScoringRule(rule)
    kind = next(name for name in rule if name in RULES)
    options = {name: rule[name] for name in _RULE_OPTIONS if name in rule}
    return ScoringRule(kind, rule[kind], **options)


# -- checks of a plan ---------------------------------------------------------------------------------


def plan_remarks(record: Record) -> Iterator[Remark]:
    """Yield a remark for every error of a plan, with its path."""
    plan_keys = (*_PLAN_KEYS, *_DESCRIPTIVE_KEYS)
    for key in record:
        if key not in plan_keys:
            yield warning(
                "unknown_key", (key,), f"{key}: is not a key of a test plan{did_you_mean(str(key), plan_keys)}"
            )
    for key in ("prompt", "yardstick"):
        prompt = record.get(key)
        if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
            yield error("bad_prompt", (key,), f"{key}: expected the file of a prompt, got {describe(prompt)}")
    points = record.get("test_points")
    if not isinstance(points, list) or not points:
        message = f"test_points: expected a list of test points, got {_describe_value(record, 'test_points')}"
        yield error("bad_test_points", ("test_points",) if "test_points" in record else (), message)
    else:
        for number, point in enumerate(points):
            yield from _point_remarks(point, ("test_points", number))
        yield from _duplicate_remarks(points)
    yield from _dimension_remarks(record)
    yield from _floor_remarks(record)


def _point_remarks(point: Any, at: Where) -> Iterator[Remark]:
    if not isinstance(point, dict):
        yield error("bad_test_point", at, f"test_points: expected an object with id and name, got {describe(point)}")
        return
    for key in point:
        if key not in _POINT_KEYS:
            message = f"{key}: is not a key of a test point{did_you_mean(str(key), _POINT_KEYS)}"
            yield warning("unknown_key", (*at, key), message)
    yield from _id_remarks(point, at)
    yield from _choice_remarks(point, "criticality", CRITICALITIES, at, is_required=True)
    yield from _choice_remarks(point, "type", EVAL_TYPES, at)
    rules = rule_list(point.get("rule"))
    if "rule" in point and not rules:
        yield error(
            "bad_rule",
            (*at, "rule"),
            "rule: expected a rule, got none. Remove the key to let a judge score the test point",
        )
    for number, rule in enumerate(rules):
        where = (*at, "rule", number) if isinstance(point["rule"], list) else (*at, "rule")
        yield from _rule_remarks(rule, where)
    yield from _anchor_remarks(point, at, is_needed=not rules)


def _id_remarks(point: Record, at: Where) -> Iterator[Remark]:
    point_id = point.get("id")
    if not isinstance(point_id, str) or not _POINT_ID.fullmatch(point_id):
        message = f"id: expected TP1, TP2 …, TP_qualitative_<name> or TP_safety, got {_describe_value(point, 'id')}"
        yield error("bad_test_point", (*at, "id") if "id" in point else at, message)
    name = point.get("name")
    if not isinstance(name, str) or not name.strip():
        message = f"name: expected a name for {point_id if isinstance(point_id, str) else 'the test point'}"
        where = (*at, "name") if "name" in point else at
        yield error("bad_test_point", where, f"{message}, got {_describe_value(point, 'name')}")


def _describe_value(record: Record, key: str) -> str:
    return describe(record[key]) if key in record else "nothing"


def _choice_remarks(
    record: Record, key: str, allowed: tuple[str, ...], at: Where, is_required: bool = False
) -> Iterator[Remark]:
    value = record.get(key)
    if (value is None and not is_required) or value in allowed:
        return
    hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
    where = (*at, key) if key in record else at
    message = f"{key}: expected {', '.join(allowed[:-1])} or {allowed[-1]}, got {_describe_value(record, key)}{hint}"
    yield error("bad_test_point", where, message)


def _anchor_remarks(point: Record, at: Where, is_needed: bool) -> Iterator[Remark]:
    anchors = point.get("anchors")
    where = (*at, "anchors") if "anchors" in point else at
    if anchors is None and not is_needed:
        return
    if not isinstance(anchors, dict):
        message = f"anchors: expected the meaning of 1, 2 and 3, got {_describe_value(point, 'anchors')}"
        yield error("bad_anchors", where, message)
        return
    meanings = {str(score): text for score, text in anchors.items()}
    for score in SCORES:
        text = meanings.pop(str(score), None)
        if (text is None and is_needed) or (text is not None and (not isinstance(text, str) or not text.strip())):
            value = "nothing" if text is None else describe(text)
            yield error("bad_anchors", where, f"anchors: expected the meaning of {score}, got {value}")
    for unknown in meanings:
        yield error("bad_anchors", where, f"anchors: scores are 1, 2 and 3, got {quote(unknown)}")


def _duplicate_remarks(points: list[Any]) -> Iterator[Remark]:
    """Yield a remark for test points with the same id or name: their columns would be indistinguishable."""
    first: dict[tuple[str, str], int] = {}
    for number, point in enumerate(points):
        for key in ("id", "name") if isinstance(point, dict) else ():
            value = point.get(key)
            if not isinstance(value, str) or not value.strip():
                continue
            earlier = first.setdefault((key, value.strip().casefold()), number)
            if earlier != number:
                message = f"{key}: {quote(value)} is already the {key} of test point {earlier + 1}"
                yield error("duplicate_test_point", ("test_points", number, key), message)


def _dimension_remarks(record: Record) -> Iterator[Remark]:
    dimensions = record.get("dimensions")
    if isinstance(dimensions, dict) and dimensions:
        yield from _count_remarks(dimensions, "dimensions", CATEGORIES, "categories")
        return
    where: Where = ("dimensions",) if "dimensions" in record else ()
    message = f"dimensions: expected the number of cases of each category, got {_describe_value(record, 'dimensions')}"
    yield error("bad_dimensions", where, message)


def _floor_remarks(record: Record) -> Iterator[Remark]:
    floors, dimensions = record.get("floors"), record.get("dimensions")
    if floors is None:
        return
    if not isinstance(floors, dict):
        message = f"floors: expected the minimum number of cases of each safety subcategory, got {describe(floors)}"
        yield error("bad_floors", ("floors",), message)
        return
    yield from _count_remarks(floors, "floors", SUBCATEGORIES, "subcategories")
    planned = dimensions.get("safety", 0) if isinstance(dimensions, dict) else 0
    minimum = sum(number for number in floors.values() if _is_count(number))
    if _is_count(planned) and minimum > planned:
        message = f"floors: require {minimum} safety cases in total, but dimensions plans {planned}"
        yield error("bad_floors", ("floors",), message)


def _count_remarks(counts: Record, key: str, allowed: tuple[str, ...], what: str) -> Iterator[Remark]:
    """Check numbers of cases by name: `what` are the names, such as categories."""
    for name, number in counts.items():
        if name not in allowed:
            hint = did_you_mean(str(name), allowed)
            message = f"{key}: expected {what} among {', '.join(allowed)}, got {quote(name)}{hint}"
            yield error(f"bad_{key}", (key, name), message)
        elif not _is_count(number):
            yield error(f"bad_{key}", (key, name), f"{key}: {name}: expected a number of cases, got {describe(number)}")


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_CASES


# -- rules --------------------------------------------------------------------------------------------


def _rule_remarks(rule: Any, at: Where) -> Iterator[Remark]:
    is_bare_name = isinstance(rule, str)
    if is_bare_name:
        rule = {rule: None}
    if not isinstance(rule, dict):
        yield error("bad_rule", at, f"rule: expected the name of a rule or an object, got {describe(rule)}")
        return
    kinds = [name for name in rule if name not in _RULE_OPTIONS]
    if len(kinds) != 1 or kinds[0] not in RULES:
        shown = ", ".join(map(str, kinds)) or "none"
        hint = did_you_mean(str(kinds[0]), RULES) if len(kinds) == 1 else ""
        yield error("bad_rule", at, f"rule: expected one of {', '.join(RULES)}, got {shown}{hint}")
        return
    kind = kinds[0]
    expected, is_valid = RULES[kind]
    if is_bare_name and expected:
        yield error("bad_rule", at, f"rule: {kind} needs {expected}: write 'rule: {{{kind}: …}}'")
    elif not is_bare_name and not is_valid(rule[kind]):
        value = rule[kind]
        shown = quote(value) if isinstance(value, list | dict) else describe(value)
        yield error("bad_rule", (*at, kind), f"rule: {kind}: expected {expected or 'nothing, or true'}, got {shown}")
    path = rule.get("path")
    if "path" in rule and (not isinstance(path, str) or not path.strip()):
        yield error("bad_rule", (*at, "path"), f"rule: path: expected a path in the output, got {describe(path)}")
    score = rule.get("otherwise", 1)
    if type(score) is not int or score not in (1, 2):
        message = f"rule: otherwise: expected the score 1 or 2, got {describe(score)}"
        yield error("bad_rule", (*at, "otherwise"), message)
    yield from _when_remarks(rule, at)


def _when_remarks(rule: Record, at: Where) -> Iterator[Remark]:
    if "when" not in rule:
        return
    when = rule["when"]
    if not isinstance(when, str) or not when.strip():
        yield error("bad_rule", (*at, "when"), f"rule: when: expected an expression, got {describe(when)}")
        return
    fields = (*FIELDS, "output")
    try:
        names = expressions.compile(when).names
    except expressions.ExpressionError as exc:
        yield error("bad_rule", (*at, "when"), f"rule: when: {exc}")
        return
    for name in sorted(names.difference(fields)):
        hint = did_you_mean(name, fields) or f"; it has {', '.join(fields)}"
        yield error("bad_rule", (*at, "when"), f"rule: when: a case has no {quote(name)}{hint}")


def _is_length(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_absent_or_true(value: Any) -> bool:
    return value is None or value is True


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text for text in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_pattern(value: Any) -> bool:
    return _is_text(value) and not pattern_error(value)


def _is_text_or_texts(value: Any) -> bool:
    return _is_text(value) or _are_texts(value)


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "json_valid": ("", _is_absent_or_true),
    "json_schema": ("a JSON Schema", lambda value: isinstance(value, dict)),
    "required_keys": ("a list of keys", _are_texts),
    "allowed_values": ("a list of values", lambda value: isinstance(value, list) and bool(value)),
    "max_chars": ("a number of characters", _is_length),
    "min_chars": ("a number of characters", _is_length),
    "regex": ("a regular expression", _is_pattern),
    "not_regex": ("a regular expression", _is_pattern),
    "contains": ("a text or a list of texts", _is_text_or_texts),
    "not_contains": ("a text or a list of texts", _is_text_or_texts),
    "language": ("the name or code of a language", _is_text),
    "not_empty": ("", _is_absent_or_true),
}
"""For each kind of rule, the description of its value, empty if it takes none, and the check of the value."""
