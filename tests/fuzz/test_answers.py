"""Texts that llms and tables give: JSON in an answer, output parsers, cells, JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.conftest import JSON, TEXTS, fuzz, mutations, nested

from evalloom.core.errors import CallError
from evalloom.core.json_schema import validator
from evalloom.core.value import as_output, read_text
from evalloom.data.cells import as_list, as_object, read_cell
from evalloom.llms.answer_json import NO_JSON, AnswerError, find_json, loads, object_in, only_object, strip_reasoning
from evalloom.llms.output_parser import KINDS, parse, read_parser

ANSWER = st.lists(
    TEXTS
    | JSON.map(json.dumps)
    | st.sampled_from(
        [
            *(
                "```json\n",
                "```\n",
                "```",
                "<think>",
                "</think>",
                "◁think▷",
                "{",
                "}",
                "[",
                "]",
                "[[",
                '{"a": ',
                "{'a': 'b'}",
            ),
            *(
                '{"a": 1,}',
                "{a: 1}",
                '{"a": "b',
                '{"a": 1, "a": 2}',
                "NaN",
                "Infinity",
                "True",
                "None",
                "\\u00",
                "...",
                "//c\n",
            ),
            *(
                '"',
                ",",
                ":",
                "yes",
                "no",
                "42",
                "1,000.5",
                "- item\n",
                "1. item\n",
                "A",
                "B",
                "\ud800",
                "[" * 200,
                "{" * 200,
            ),
        ]
    ),
    max_size=7,
).map("".join)


@fuzz(text=ANSWER)
def test_json_is_found_in_any_answer_or_is_not(text: str) -> None:
    whole = loads(text)
    if whole is not NO_JSON:
        assert [answer.value for answer in find_json(text)] == [whole]
    for answer in find_json(text, malformed="repair"):
        json.dumps(answer.value, allow_nan=False)
    for answer in find_json(text):
        json.dumps(answer.value)
    object_in(text), strip_reasoning(text)
    for strict in (lambda: list(find_json(text, malformed="refuse")), lambda: only_object(text)):
        try:
            strict()
        except AnswerError as error:
            assert str(error)


BEFORE = st.sampled_from(["", "Here it is: ", "Sure.\n\n", "<think>so {x}</think>\n", "\ufeff", "```json\n", "一\n"])


@fuzz(value=st.dictionaries(TEXTS, JSON, min_size=1, max_size=3), before=BEFORE, indent=st.sampled_from([None, 2]))
def test_an_object_in_an_answer_is_found_as_it_was_written(value: Any, before: str, indent: int | None) -> None:
    text = before + json.dumps(value, ensure_ascii=False, indent=indent) + ("\n```" if "`" in before else "")
    for mode in ("skip", "repair", "refuse"):
        assert next(iter(find_json(text, malformed=mode))).value == value
    if not before.strip("\ufeff`json\n"):
        assert only_object(text) == value


PARSER = {
    "type": "json",
    "schema": {"type": "object", "required": ["a"]},
    "choices": ["A", "B"],
    "pattern": "(a+)",
    "max_retries": 1,
}


@fuzz(written=mutations(st.just(PARSER), ["type", "schema", "choices"]) | st.sampled_from(KINDS) | JSON, text=ANSWER)
def test_an_output_parser_parses_or_says_why_not(written: Any, text: str) -> None:
    parser, errors = read_parser(written)
    assert all(message for _, message in errors)
    if not errors:
        try:
            json.dumps(parse(parser, text).value)
        except AnswerError as error:
            assert str(error)


@fuzz(
    text=TEXTS | ANSWER | JSON.map(repr), name=st.sampled_from(["tags", "x"]), separator=st.sampled_from(["", ",", ";"])
)
def test_any_cell_is_read(text: str, name: str, separator: str) -> None:
    for value in (as_list(text, separator), as_object(text), read_cell(name, text)):
        json.dumps(value, allow_nan=False)
    assert as_list(text) is None or isinstance(as_list(text), list)


TEXT_LIST = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=4)


@fuzz(items=TEXT_LIST, values=st.lists(JSON, max_size=3))
def test_a_list_in_a_cell_comes_back(items: list[str], values: list[Any]) -> None:
    assert as_list(repr(items)) == items
    assert as_list(json.dumps(items)) == items == read_cell("tags", json.dumps(items))
    assert as_object(json.dumps({"a": items})) == {"a": items}


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "^x", "minLength": 1}, "b": {"$ref": "#/$defs/n"}},
    "required": ["a"],
    "$defs": {"n": {"anyOf": [{"type": "number"}, {"$ref": "#"}], "enum": [1, 2], "multipleOf": 0.5}},
}
SCHEMA_KEYS = ["type", "properties", "items", "$ref", "$id", "pattern", "format", "minimum", "not", "allOf", "$schema"]


@fuzz(schema=mutations(st.just(SCHEMA), SCHEMA_KEYS), value=JSON)
def test_a_schema_is_compiled_or_refused(schema: Any, value: Any) -> None:
    try:
        compiled = validator(schema)
    except (TypeError, ValueError, RecursionError):
        return
    compiled.is_valid(value)


@fuzz(
    value=JSON
    | st.sampled_from([nested(1, 150), nested(1, 250), float("nan"), "\ud800", {1: 2}, {(1,): 2}, b"x", 10**5000])
)
def test_any_value_of_a_target_is_an_output_or_an_error_of_its_run(value: Any) -> None:
    try:
        json.dumps(as_output(value).value, allow_nan=False).encode()
    except CallError as error:
        assert error.code == "bad_output"


@fuzz(text=st.binary(max_size=40) | ANSWER.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_output_of_a_program_is_a_text_or_json(text: bytes) -> None:
    json.dumps(read_text(text), allow_nan=False)
