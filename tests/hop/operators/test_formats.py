"""Formats: what is asked for, and what is read from an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.hop.operators.formats import format_of
from evalloom.hop.operators.parse import JUDGEMENT
from evalloom.hop.operators.tools import choice_format
from evalloom.llms.answer_json import AnswerError


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Graded:
    score: int
    is_final: bool = False
    tags: list[str] = field(default_factory=list)


class Place(TypedDict):
    name: str
    at: tuple[float, float]


class Page(msgspec.Struct):
    title: str
    number: int | None = None


class Model:
    """As pydantic's models look from outside."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    @classmethod
    def model_validate(cls, found: Any) -> Model:
        if not isinstance(found, dict) or "n" not in found:
            raise ValueError("n: field required")
        return cls(found)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {"n": {"type": "integer"}}}


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


def read(return_format: Any, text: str) -> Any:
    return format_of(return_format).read(text)


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("return_format", "text", "value"),
    [
        (str, "  Paris \n", "Paris"),
        (str, '"Paris"', "Paris"),
        (str, 'He said "no".', 'He said "no".'),
        (str, "42", "42"),
        (None, "Paris", "Paris"),
        (int, "42", 42),
        (int, '"42"', 42),
        (int, "42.0", 42),
        (int, "**42**.", 42),
        (int, '{"value": 42}', 42),
        (int, '{"result": "42"}', 42),
        (int, "```json\n42\n```", 42),
        (float, "1", 1.0),
        (bool, "true", True),
        (bool, "Yes.", True),
        (bool, "否。", False),
        (bool, '{"answer": "是"}', True),
        (list, 'Here: ["a", 1]', ["a", 1]),
        (list[str], '{"answer": ["a"]}', ["a"]),
        (dict, '{"value": 5}', {"value": 5}),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (Literal["yes", "no"], "Yes.", "yes"),
        (Literal["a", "b"], '{"value": "b"}', "b"),
        (Literal[1, 2], "2", 2),
        (Mood, "Good", Mood.GOOD),
        (Mood, '"bad"', Mood.BAD),
        (int | None, "null", None),
        (str | None, "He left.", "He left."),
        (Graded, '{"score": "3", "is_final": "是"}', Graded(3, True)),
        (list[Graded], '[{"score": 3, "is_final": "no"}]', [Graded(3)]),
        (Place, '{"name": "x", "at": [1, 2], "more": 0}', {"name": "x", "at": (1.0, 2.0)}),
        (Page, '{"title": "x"}', Page("x")),
        (Any, '{"a": 1}', {"a": 1}),
        (SCHEMA, '{"n": 1}', {"n": 1}),
        ({"type": "string"}, "Paris", "Paris"),
        ({"enum": ["a", 1]}, "a", "a"),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
    ],
)
def test_an_answer_is_read_as_the_value_it_means(return_format: Any, text: str, value: Any) -> None:
    found = read(return_format, text)
    assert found == value and type(found) is type(value)


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("return_format", "text", "said"),
    [
        (str, " \n", "empty"),
        (int, "true", "int"),
        (int, "42.5", "int"),
        (int, "about 42", "about 42"),
        (float, "NaN", "number"),
        (bool, "maybe", "maybe"),
        (Literal["a", "b"], "c", "'c'"),
        (list[int], '["x"]', "$[0]"),
        (list, '["a", ["b"]', "delimiter"),
        (dict, '{"a": {"b": 1},}', "line 1 column"),
        (dict, '{"a": 1} or {"a": 2}', "several"),
        (dict, "[1]", "object"),
        (Graded, '{"score": [1]}', "$.score"),
        (Graded, '{"is_final": true}', "score"),
        (Graded, '{"score": 1, "is_final": "perhaps"}', "$.is_final"),
        (SCHEMA, '{"n": 0}', "minimum"),
        (SCHEMA, "no JSON", "no JSON"),
        (Model, "{}", "n: field required"),
        ("three cities", '""', "three cities"),
    ],
)
def test_a_misfit_says_what_was_expected_and_what_came(return_format: Any, text: str, said: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read(return_format, text)
    assert said in str(caught.value)


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("fields", "text", "value"),
    [
        ({"score": "int", "reason": "string"}, '{"score": "3", "reason": "x", "more": 1}', {"score": 3, "reason": "x"}),
        ({"score": int, "ok": "bool"}, '{"score": 3, "ok": "否"}', {"score": 3, "ok": False}),
        ({"分数": "整数（1 到 5）", "理由": "字符串：一句话"}, '{"分数": 4, "理由": "好"}', {"分数": 4, "理由": "好"}),
        ({"n": "float?", "m": "int | null"}, '{"m": null}', {"m": None}),
        (
            {"names": ["string"], "at": {"x": "int"}},
            '{"names": ["a"], "at": {"x": 1}}',
            {"names": ["a"], "at": {"x": 1}},
        ),
        ({"names": "list[string]"}, '{"names": ["a"]}', {"names": ["a"]}),
        ({"note": "what strikes you"}, '{"note": [1, "x"]}', {"note": [1, "x"]}),
        ({"type": "string", "items": "list"}, '{"type": "x", "items": []}', {"type": "x", "items": []}),
        ({"type": "what kind of error", "n": "int"}, '{"type": "x", "n": 1}', {"type": "x", "n": 1}),
        ({"n": {"type": "integer", "maximum": 5}, "why": "string"}, '{"n": 5, "why": "x"}', {"n": 5, "why": "x"}),
    ],
)
def test_fields_by_name_may_be_told_in_words(fields: Any, text: str, value: Any) -> None:
    assert read(fields, text) == value
    assert format_of(fields).is_object


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"score": "int", "reason": "string"}, '{"score": 3}'),
        ({"score": "int"}, '{"score": true}'),
        ({"names": ["string"]}, '{"names": [1]}'),
        ({"n": {"type": "integer", "maximum": 5}, "why": "string"}, '{"n": 6, "why": "x"}'),
        ({"score": "int"}, "[3]"),
    ],
)
def test_fields_must_be_there_and_of_their_type(fields: Any, text: str) -> None:
    with pytest.raises(AnswerError):
        read(fields, text)


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["Oslo", "Rome"]', ["Oslo", "Rome"]),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("Oslo and Rome", "Oslo and Rome"),
        ('They are ["Oslo"].', 'They are ["Oslo"].'),
        ("42", "42"),
    ],
)
def test_a_description_takes_an_object_a_list_or_the_text(text: str, value: Any) -> None:
    assert read("a list of city names", text) == value


def test_a_model_like_pydantics_is_known_by_its_looks() -> None:
    found = read(Model, '{"n": 1}')
    assert isinstance(found, Model) and found.fields == {"n": 1}
    assert format_of(Model).is_object and '"integer"' in format_of(Model).describe(False)


@pytest.mark.parametrize(
    ("return_format", "form"),
    [
        (int, "<integer>"),
        (list[str], "[<string>, …]"),
        (Literal["b", "a"], '"a" | "b"'),
        (int | None, "<integer> | null"),
        (Place, '{"name": <string>, "at": [<number>, <number>]}'),
        (Graded, '{"score": <integer>, "is_final": <true or false> (optional), "tags": [<string>, …] (optional)}'),
        (
            {"why": "string", "a": "int (1 to 5)", "b": "your view"},
            '{"why": <string>, "a": <integer: 1 to 5>, "b": <your view>}',
        ),
        ("three cities", "three cities"),
        (SCHEMA, json.dumps(SCHEMA)),
    ],
)
def test_the_prompt_shows_the_form_in_both_languages(return_format: Any, form: str) -> None:
    found = format_of(return_format)
    assert found.describe(False).endswith(form) and found.describe(True).endswith(form)
    assert found.describe(False).startswith("Reply with") and found.describe(True).startswith("只回复")


@pytest.mark.parametrize(
    "return_format", [5, object(), [int, str], {"a": 5}, {"type": "object", "properties": {"a": {"type": 5}}}, print]
)
def test_what_is_no_format_is_refused(return_format: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected"):
        format_of(return_format)


def test_a_class_that_checks_its_fields_is_heard() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    assert read(Even, '{"n": 2}') == Even(2)
    with pytest.raises(AnswerError, match="even"):
        read(Even, '{"n": 1}')


def test_fields_of_ones_own_classes_may_have_chinese_names() -> None:
    @dataclass
    class Verdict:
        结论: str
        可信度: float = 0.0

    assert read(list[Verdict], '[{"结论": "属实", "可信度": "0.5"}]') == [Verdict("属实", 0.5)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TYPES = (
    str,
    int,
    float,
    bool,
    list,
    dict,
    list[str],
    list[int],
    Literal["a", "b"],
    int | None,
    Graded,
    Place,
    Page,
    Mood,
)
TOLD = ({"score": "int", "ok": "bool?"}, SCHEMA, {"type": ["integer", "null"]}, "a short text", Model)


@pytest.mark.req("HOP-10")
@given(JSON | st.fixed_dictionaries({"score": JSON, "n": JSON}), st.sampled_from(TYPES))
def test_any_json_gives_a_value_of_the_type_or_a_misfit(value: Any, kind: Any) -> None:
    try:
        found = read(kind, json.dumps(value))
    except AnswerError as error:
        assert str(error)
    else:
        assert msgspec.convert(msgspec.to_builtins(found), kind) == found


@given(JSON.map(json.dumps) | st.text(), st.sampled_from((*TYPES, *TOLD)))
def test_any_text_is_read_or_is_a_misfit_and_nothing_else(text: str, return_format: Any) -> None:
    for found in (format_of(return_format), JUDGEMENT, choice_format(())):
        try:
            found.read(text)
        except AnswerError as error:
            assert str(error)
