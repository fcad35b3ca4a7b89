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
MOST_CASES = 10_000
"""A larger number of cases of one category is a typing error."""
_POINT_ID = lazy_pattern(r"TP[1-9][0-9]*|TP_qualitative_\w+|TP_safety")
_PROMPT_LINE = lazy_pattern(r"^prompt:.*\n?(?:[ \t]+.*\n?|\n(?=[ \t]))*", re.MULTILINE)
_PLAN_KEYS = ("prompt", "yardstick", "test_points", "dimensions", "floors")
_ABOUT_KEYS = ("title", "description", "version", "notes", "author", "language")
_POINT_KEYS = ("id", "name", "type", "criticality", "anchors", "rule", "description", "notes")
_RULE_EXTRAS = ("path", "otherwise", "when")


class ScoringRule(Struct, frozen=True):
    """A condition on the output; if it does not hold, the test point gets the score `otherwise`."""

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
    """Ids of test points in the order of the table (EVAL-11)."""
    return [one for one in ids if one != SAFETY] + [SAFETY] * (SAFETY in ids)


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


def with_prompt_named(text: str, prompt: str) -> str:
    """Return the text of a plan with another prompt file, and everything else unchanged.

    This replaces lines. YAML has many ways to write a key, so callers parse the result to check it.
    """
    line = f"prompt: {json.dumps(prompt, ensure_ascii=False)}\n"
    changed, times = _PROMPT_LINE.subn(lambda _: line, text, count=1)
    return changed if times else line + text


def plan_of(record: Record, path: Path = Path("test_plan.yaml")) -> TestPlan:
    """Build the plan from a record without errors."""
    points = {str(one["id"]): _point(one) for one in record["test_points"]}
    return TestPlan(
        points=tuple(points[one] for one in safety_last(list(points))),
        dimensions={name: record["dimensions"][name] for name in CATEGORIES if record["dimensions"].get(name)},
        floors=dict(record.get("floors") or {}),
        prompt=record.get("prompt") or "",
        yardstick=record.get("yardstick") or "",
        path=path,
    )


def _point(written: Record) -> TestPoint:
    default_type = "qualitative" if written["id"].startswith("TP_qualitative_") else "quantitative"
    if written["id"] == SAFETY:
        default_type = "safety"
    return TestPoint(
        id=written["id"],
        name=written["name"].strip(),
        type=written.get("type") or default_type,
        criticality=written["criticality"],
        anchors={int(score): str(text).strip() for score, text in (written.get("anchors") or {}).items()},
        rules=tuple(_rule(one) for one in rules_in(written.get("rule"))),
    )


def rules_in(written: Any) -> list[Any]:
    """Return the rules of a test point: none, one, or a list of rules that must all hold."""
    if written is None:
        return []
    return written if isinstance(written, list) else [written]


def _rule(written: str | Record) -> ScoringRule:
    if isinstance(written, str):
        return ScoringRule(written)
    kind = next(name for name in written if name in RULES)
    extras = {name: written[name] for name in _RULE_EXTRAS if name in written}
    return ScoringRule(kind, written[kind], **extras)


# -- checks of a plan ---------------------------------------------------------------------------------


def plan_remarks(record: Record) -> Iterator[Remark]:
    """Yield a remark for every error of a plan, with its path."""
    known = (*_PLAN_KEYS, *_ABOUT_KEYS)
    for key in record:
        if key not in known:
            yield warning("unknown_key", (key,), f"{key}: is not a key of a test plan{did_you_mean(str(key), known)}")
    yield from _prompt_remarks(record)
    points = record.get("test_points")
    if not isinstance(points, list) or not points:
        is_there = "test_points" in record
        yield error(
            "bad_test_points",
            ("test_points",) if is_there else (),
            f"test_points: expected a list of test points, got {describe(points) if is_there else 'nothing'}",
        )
    else:
        for number, point in enumerate(points):
            yield from _point_remarks(point, ("test_points", number))
        yield from _twice(points)
    yield from _dimension_remarks(record)
    yield from _floor_remarks(record)


def _prompt_remarks(record: Record) -> Iterator[Remark]:
    for key in ("prompt", "yardstick"):
        prompt = record.get(key)
        if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
            yield error("bad_prompt", (key,), f"{key}: expected the file of a prompt, got {describe(prompt)}")


def _point_remarks(point: Any, at: Where) -> Iterator[Remark]:
    if not isinstance(point, dict):
        yield error("bad_test_point", at, f"test_points: expected an object with id and name, got {describe(point)}")
        return
    for key in point:
        if key not in _POINT_KEYS:
            message = f"{key}: is not a key of a test point{did_you_mean(str(key), _POINT_KEYS)}"
            yield warning("unknown_key", (*at, key), message)
    yield from _id_remarks(point, at)
    yield from _choice(point, "criticality", CRITICALITIES, at, is_required=True)
    yield from _choice(point, "type", EVAL_TYPES, at)
    written = rules_in(point.get("rule"))
    if "rule" in point and not written:
        yield error("bad_rule", (*at, "rule"), "rule: expected a rule, got none; leave the key out for a judge")
    for number, rule in enumerate(written):
        where = (*at, "rule", number) if isinstance(point["rule"], list) else (*at, "rule")
        yield from _rule_remarks(rule, where)
    yield from _anchor_remarks(point, at, is_needed=not written)


def _id_remarks(point: Record, at: Where) -> Iterator[Remark]:
    own = point.get("id")
    if not isinstance(own, str) or not _POINT_ID.fullmatch(own):
        message = f"id: expected TP1, TP2 …, TP_qualitative_<name> or TP_safety, got {_or_nothing(point, 'id')}"
        yield error("bad_test_point", (*at, "id") if "id" in point else at, message)
    name = point.get("name")
    if not isinstance(name, str) or not name.strip():
        message = f"name: expected what {own if isinstance(own, str) else 'the test point'} is about"
        where = (*at, "name") if "name" in point else at
        yield error("bad_test_point", where, f"{message}, got {_or_nothing(point, 'name')}")


def _or_nothing(record: Record, key: str) -> str:
    return describe(record[key]) if key in record else "nothing"


def _choice(
    record: Record, key: str, allowed: tuple[str, ...], at: Where, is_required: bool = False
) -> Iterator[Remark]:
    value = record.get(key)
    if (value is None and not is_required) or value in allowed:
        return
    hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
    where = (*at, key) if key in record else at
    message = f"{key}: expected {', '.join(allowed[:-1])} or {allowed[-1]}, got {_or_nothing(record, key)}{hint}"
    yield error("bad_test_point", where, message)


def _anchor_remarks(point: Record, at: Where, is_needed: bool) -> Iterator[Remark]:
    anchors = point.get("anchors")
    where = (*at, "anchors") if "anchors" in point else at
    if anchors is None and not is_needed:
        return
    if not isinstance(anchors, dict):
        message = f"anchors: expected what 1, 2 and 3 mean, got {_or_nothing(point, 'anchors')}"
        yield error("bad_anchors", where, message)
        return
    said = {str(score): text for score, text in anchors.items()}
    for score in SCORES:
        text = said.pop(str(score), None)
        if (text is None and is_needed) or (text is not None and (not isinstance(text, str) or not text.strip())):
            found = "nothing" if text is None else describe(text)
            yield error("bad_anchors", where, f"anchors: expected what a {score} means, got {found}")
    for other in said:
        yield error("bad_anchors", where, f"anchors: scores are 1, 2 and 3, got {quote(other)}")


def _twice(points: list[Any]) -> Iterator[Remark]:
    """Yield a remark for test points with the same id or name: their columns would look alike."""
    first: dict[tuple[str, str], int] = {}
    for number, point in enumerate(points):
        for key in ("id", "name") if isinstance(point, dict) else ():
            value = point.get(key)
            if not isinstance(value, str) or not value.strip():
                continue
            before = first.setdefault((key, value.strip().casefold()), number)
            if before != number:
                message = f"{key}: {quote(value)} is already the {key} of test point {before + 1}"
                yield error("duplicate_test_point", ("test_points", number, key), message)


def _dimension_remarks(record: Record) -> Iterator[Remark]:
    dimensions = record.get("dimensions")
    if isinstance(dimensions, dict) and dimensions:
        yield from _count_remarks(dimensions, "dimensions", CATEGORIES, "categories")
        return
    where: Where = ("dimensions",) if "dimensions" in record else ()
    message = f"dimensions: expected how many cases of each category, got {_or_nothing(record, 'dimensions')}"
    yield error("bad_dimensions", where, message)


def _floor_remarks(record: Record) -> Iterator[Remark]:
    floors, dimensions = record.get("floors"), record.get("dimensions")
    if floors is None:
        return
    if not isinstance(floors, dict):
        message = f"floors: expected the least number of cases of each safety subcategory, got {describe(floors)}"
        yield error("bad_floors", ("floors",), message)
        return
    yield from _count_remarks(floors, "floors", SUBCATEGORIES, "subcategories")
    planned = dimensions.get("safety", 0) if isinstance(dimensions, dict) else 0
    least = sum(number for number in floors.values() if _is_count(number))
    if _is_count(planned) and least > planned:
        message = f"floors: come to {least} safety cases, and dimensions plans {planned}"
        yield error("bad_floors", ("floors",), message)


def _count_remarks(counts: Record, key: str, allowed: tuple[str, ...], what: str) -> Iterator[Remark]:
    """Yield remarks about numbers of cases by name."""
    for name, number in counts.items():
        if name not in allowed:
            hint = did_you_mean(str(name), allowed)
            message = f"{key}: expected {what} among {', '.join(allowed)}, got {quote(name)}{hint}"
            yield error(f"bad_{key}", (key, name), message)
        elif not _is_count(number):
            yield error(f"bad_{key}", (key, name), f"{key}: {name}: expected a number of cases, got {describe(number)}")


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST_CASES


# -- rules --------------------------------------------------------------------------------------------


def _rule_remarks(rule: Any, at: Where) -> Iterator[Remark]:
    if isinstance(rule, str):
        rule, is_named = {rule: None}, True
    else:
        is_named = False
    if not isinstance(rule, dict):
        yield error("bad_rule", at, f"rule: expected the name of a rule or an object, got {describe(rule)}")
        return
    kinds = [name for name in rule if name not in _RULE_EXTRAS]
    if len(kinds) != 1 or kinds[0] not in RULES:
        shown = ", ".join(map(str, kinds)) or "none"
        hint = did_you_mean(str(kinds[0]), RULES) if len(kinds) == 1 else ""
        yield error("bad_rule", at, f"rule: expected one of {', '.join(RULES)}, got {shown}{hint}")
        return
    kind = kinds[0]
    expected, is_right = RULES[kind]
    if is_named and expected:
        yield error("bad_rule", at, f"rule: {kind} needs {expected}: write 'rule: {{{kind}: …}}'")
    elif not is_named and not is_right(rule[kind]):
        value = rule[kind]
        shown = quote(value) if isinstance(value, list | dict) else describe(value)
        yield error("bad_rule", (*at, kind), f"rule: {kind}: expected {expected or 'nothing, or true'}, got {shown}")
    path = rule.get("path")
    if "path" in rule and (not isinstance(path, str) or not path.strip()):
        yield error("bad_rule", (*at, "path"), f"rule: path: expected a place in the output, got {describe(path)}")
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
    known = (*FIELDS, "output")
    try:
        names = expressions.compile(when).names
    except expressions.ExpressionError as exc:
        yield error("bad_rule", (*at, "when"), f"rule: when: {exc}")
        return
    for name in sorted(names.difference(known)):
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        yield error("bad_rule", (*at, "when"), f"rule: when: a case has no {quote(name)}{hint}")


def _is_length(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_nothing(value: Any) -> bool:
    return value is None or value is True


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and one for one in value)


def _are_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_pattern(value: Any) -> bool:
    return _is_text(value) and not pattern_error(value)


def _is_text_or_texts(value: Any) -> bool:
    return _is_text(value) or _are_texts(value)


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "json_valid": ("", _is_nothing),
    "json_schema": ("a JSON Schema", lambda value: isinstance(value, dict)),
    "required_keys": ("a list of keys", _are_texts),
    "allowed_values": ("a list of values", _are_values),
    "max_chars": ("a number of characters", _is_length),
    "min_chars": ("a number of characters", _is_length),
    "regex": ("a regular expression", _is_pattern),
    "not_regex": ("a regular expression", _is_pattern),
    "contains": ("a text or a list of texts", _is_text_or_texts),
    "not_contains": ("a text or a list of texts", _is_text_or_texts),
    "language": ("the name or code of a language", _is_text),
    "not_empty": ("", _is_nothing),
}
"""The kinds of rules: the value that each takes, in words and as a test; nothing for those without a value."""
