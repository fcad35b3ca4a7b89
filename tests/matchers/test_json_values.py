"""JSON, schemas and types."""

from typing import Any

import pytest

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.where import Missing, find


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


def test_is_json_and_contains_json() -> None:
    assert grade("is_json", None, '{"a": 1}').passed
    assert grade("is_json", None, "nope").passed is False
    assert grade("is_json", {"required": ["b"]}, '{"a": 1}').passed is False
    assert grade("contains_json", None, 'so: {"a": 1}.').passed
    assert grade("contains_json", None, "so: {a}").passed is False
    assert grade("contains_json", {"required": ["b"]}, '{"a": 1} or {"b": 2}').passed


REASONED = [
    '<think>{"a": 0, "b": [0]}</think>{"a": 1, "b": [1]}',
    'First {"a": 0, "b": [0]}?\n</think>\n\n{"a": 1, "b": [1]}',
    '<think>a <think>{"a": 0}</think> {"a": 0}</think>\n{"a": 1, "b": [1]}',
]


@pytest.mark.parametrize("text", REASONED)
def test_json_in_reasoning_is_not_the_answer(text: str) -> None:
    for kind in ("structural", "equals", "contains"):
        assert grade(kind, {"a": 1, "b": [1]}, text).passed
        assert grade(kind, {"a": 0, "b": [0]}, text).passed is False
    assert grade("contains_json", {"properties": {"a": {"const": 0}}}, text).passed is False
    assert grade("json_path", "$.b", text, check={"contains": 1}).passed
    assert find("output.a", Output(text)) == 1
    # A program that reads the output as JSON would meet the reasoning first.
    assert grade("is_json", None, text).passed is False


def test_reasoning_that_was_cut_off_leaves_no_answer() -> None:
    text = '<think>Perhaps {"a": 0}'
    assert grade("contains_json", None, text).passed is False
    assert grade("json_path", "$.a", text).passed is False
    assert isinstance(find("output.a", Output(text)), Missing)


def test_json_schema_reports_every_fault() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"items": {"minimum": 5}}}, "required": ["c"]}
    found = grade("json_schema", schema, '{"a": 1, "b": [9, 1]}')
    assert {mismatch.path for mismatch in found.mismatches} == {"$", "a", "b[1]"}
    assert "more" in found.reason
    assert grade("json_schema", {"type": "string"}, "plain text").passed
    assert grade("json_schema", {"type": "object"}, "plain text").passed is False


def test_a_text_is_a_text_where_the_schema_takes_texts() -> None:
    assert grade("json_schema", {"type": "string"}, "123").passed
    assert grade("json_schema", {"type": "string", "maxLength": 3}, '"abc"').passed
    assert grade("json_schema", {"type": ["string", "object"], "pattern": "x"}, "123").passed is False
    assert grade("json_schema", {"enum": ["1", "2"]}, "1").passed
    assert grade("json_schema", {"type": "integer"}, "123").passed


def test_a_class_that_the_record_does_not_keep_is_unscored() -> None:
    found = grade("is_instance", "Invoice", {"total": 1})
    assert found.passed is None and "not kept" in found.reason
    assert grade("is_instance", "tuple", [1]).passed is False


@pytest.mark.parametrize("schema", [{"type": 5}, {"$ref": "http://127.0.0.1:9/s"}, {"$ref": "file:///etc/hosts"}, "x"])
def test_a_schema_that_cannot_be_used_is_unscored(schema: Any) -> None:
    found = grade("json_schema", schema, {"a": 1})
    assert found.passed is None and "JSON Schema" in found.reason


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        *(("str", "x", True), ("string", 1, False), ("int", 1, True), ("integer", True, False), ("number", 1.5, True)),
        *(("bool", True, True), ("list", [], True), ("object", {}, True), ("null", None, True), ("dict", [], False)),
        *(("Output", Output(), True), ("Struct", Output(), True), ("Case", Output(), False)),
    ],
)
def test_is_instance(name: str, value: Any, is_one: bool) -> None:
    assert grade("is_instance", name, value).passed is is_one
