"""Answers of llms: what each parser makes of them, what was mended, and what is said about those that cannot be read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.llms.answer_json import AnswerError, ParsedAnswer
from evalloom.llms.output_parser import KINDS, MAX_ANSWER, OutputParser, parse, read_parser

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "maximum": 10}, "why": {"type": "string"}},
    "required": ["score", "why"],
}
MOODS = OutputParser("choice", choices=("positive", "very positive", "negative", "中立"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def of_kind(kind: str, text: str) -> ParsedAnswer:
    return parse(OutputParser(kind), text)


@pytest.mark.req("PIPE-6")
@pytest.mark.parametrize(
    ("text", "value", "repair"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}, ""),
        (" 42 ", 42, ""),
        ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}, "took the JSON out of a fenced block"),
        ('```\n{"a": 1,}\n```', {"a": 1}, "took the JSON out of a fenced block, removed trailing commas"),
        (
            '```json\n{"a": [1, 2',
            {"a": [1, 2]},
            "took the JSON out of a fenced block, closed the end, which was missing",
        ),
        ("```py\nx = 1\n```\n```json\n[1]\n```", [1], "took the JSON out of one of 2 fenced blocks"),
        ('The answer is {"a": 1}.', {"a": 1}, "took the object out of the text"),
        (
            "As in [1]: {'a': 1}",
            {"a": 1},
            "took the object out of the text, which holds 2 values, read single quotes as double",
        ),
        ('{"a": 1}\n{"a": 2}', {"a": 1}, "took the object out of the text, which holds 2 values"),
        ("Use {name} and [x]: [1, 2]", [1, 2], "took the list out of the text"),
        ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}, "removed trailing commas"),
        ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}, "read single quotes as double"),
        ('{"a": True, "b": None}', {"a": True, "b": None}, "read Python's True, False and None as JSON's"),
        ('{a: 1, 键-2: "x"}', {"a": 1, "键-2": "x"}, "put quotes around bare keys"),
        ('{"a": 1, // one\n /* two */ "b": 2}', {"a": 1, "b": 2}, "left out comments"),
        ('{"a": "x\ny"}', {"a": "x\ny"}, "kept line breaks inside a text"),
        (r'{"a": "\d+ \" \\ \u00e9"}', {"a": '\\d+ " \\ é'}, "kept backslashes that escape nothing"),
        ('{"a": [1, 2], "b": "unfin', {"a": [1, 2], "b": "unfin"}, "closed the end, which was missing"),
        ('{"a": {"b": 1}, "c": tr', {"a": {"b": 1}}, "closed the end, which was missing"),
        ('{"a": 1, "b":', {"a": 1}, "closed the end, which was missing"),
        ("[1, [2], 3.", [1, [2]], "closed the end, which was missing"),
        ("[1 2]", [1, 2], "fixed the punctuation of malformed JSON (expecting ',' delimiter at character 4)"),
        ('<think>{"a": 0}?</think>\n{"a": 1}', {"a": 1}, "left out the reasoning"),
        (
            '<think>{"a": 0}?</think>\n```\n{"a": 1}\n```',
            {"a": 1},
            "left out the reasoning, took the JSON out of a fenced block",
        ),
    ],
)
def test_json_is_found_and_every_repair_is_told(text: str, value: Any, repair: str) -> None:
    assert of_kind("json", text) == ParsedAnswer(value, repair)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sorry, I cannot.",
        "use {",
        "{name}",
        '{"a" 1}',
        '{"a": NaN}',
        "[1e999,]",
    ],
)
def test_what_is_no_json_says_what_came(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        of_kind("json", text)
    assert str(caught.value) == (f"expected JSON, got {text!r}" if text else "expected JSON, got nothing")


def test_json_must_fit_its_schema() -> None:
    parser = OutputParser("json", schema=SCHEMA)
    assert parse(parser, 'See [1], {"x": 1} and {"score": 3, "why": "ok"}').value == {"score": 3, "why": "ok"}
    with pytest.raises(AnswerError) as caught:
        parse(parser, '{"score": 11}')
    assert str(caught.value) == (
        "expected JSON that fits the schema, got '{\"score\": 11}': "
        '$: "why" is a required property; score: 11 is greater than the maximum of 10'
    )
    with pytest.raises(AnswerError) as caught:
        parse(OutputParser("json", schema={"items": {"type": "string"}}), "[1, 2, 3, 4, 5]")
    assert str(caught.value).count('is not of type "string"') == 3 and str(caught.value).endswith("; and more")


@pytest.mark.parametrize(
    ("kind", "text", "value", "repair"),
    [
        ("text", " as it is\n", " as it is\n", ""),
        ("list", "a, b，c、 d", ["a", "b", "c", "d"], ""),
        ("list", '["a, b", 1]', ["a, b", 1], ""),
        ("list", '{"n": 1, "items": ["a"]}', ["a"], "took the list out of 'items'"),
        ("list", "1. one [1]\n2. two", ["one [1]", "two"], "took the marks off the lines of the list"),
        (
            "list",
            "Here:\n- a\n- b",
            ["a", "b"],
            "took the marks off the lines of the list, and left out the others",
        ),
        ("list", "Here: ['a']", ["a"], "took the list out of the text, read single quotes as double"),
        ("list", "one\n\ntwo, three", ["one", "two, three"], ""),
        ("list", "1.5, 2", ["1.5", "2"], ""),
        ("lines", "- one \n\n two\r\n", ["- one", "two"], ""),
        ("number", "7", 7, ""),
        ("number", "-1,234.5e1", -12345.0, ""),
        ("number", "**Score: 85%**", 85, "took the number out of the text"),
        ("number", "<think>7 or 8?</think>8", 8, "left out the reasoning"),
        ("number", "8 points, so 8", 8, "took the number out of the text"),
        ("boolean", "**Yes.**", True, ""),
        ("boolean", "否", False, ""),
        ("boolean", "No, because it is not true.", False, "took 'no' out of the text"),
        ("boolean", "It depends. Final answer: **true**", True, "took 'true' out of the text"),
    ],
)
def test_other_kinds(kind: str, text: str, value: Any, repair: str) -> None:
    assert of_kind(kind, text) == ParsedAnswer(value, repair)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("list", '{"a": 1}', "expected a list, got '{\"a\": 1}'"),
        ("lines", " \n", "expected at least one line, got nothing"),
        ("number", "8/10", "expected one number, got 2 of them in '8/10'"),
        ("number", "v1.2.3 is out", "expected one number, got 'v1.2.3 is out'"),
        ("number", "9" * 5000, "expected one number, got one that is too large in '999"),
        ("boolean", "That is not true", "expected true or false, or yes or no, got 'That is not true'"),
        ("boolean", "Yes. Answer: no", "expected true or false"),
        ("number", "1" * (MAX_ANSWER + 1), "expected at most 1,000,000 characters, got 1,000,001"),
    ],
)
def test_what_was_expected_and_what_came(kind: str, text: str, message: str) -> None:
    with pytest.raises(AnswerError) as caught:
        of_kind(kind, text)
    assert str(caught.value).startswith(message) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "value", "repair"),
    [
        ("negative", "negative", ""),
        (" 'Positive'.", "positive", "read \"'Positive'.\" as 'positive'"),
        ("I would call it Very Positive!", "very positive", "took 'very positive' out of the text"),
        ("我觉得是中立的", "中立", "took '中立' out of the text"),
    ],
)
def test_a_choice(text: str, value: str, repair: str) -> None:
    assert parse(MOODS, text) == ParsedAnswer(value, repair)


@pytest.mark.parametrize("text", ["positives", "positive or negative", "?", ""])
def test_no_choice_or_several(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        parse(MOODS, text)
    assert str(caught.value).startswith("expected one of 'positive', 'very positive', 'negative', '中立', got ")


def test_a_pattern_gives_its_groups() -> None:
    text = "Score: 7 of 10"
    assert parse(OutputParser("regex", pattern=r"\d+"), text).value == "7"
    assert parse(OutputParser("regex", pattern=r"Score: (\d+)"), text).value == "7"
    assert parse(OutputParser("regex", pattern=r"(\d+) of (\d+)"), text).value == ["7", "10"]
    assert parse(OutputParser("regex", pattern=r"(?P<got>\d+) of (\d+)"), text).value == {"got": "7"}
    with pytest.raises(AnswerError, match="expected a text that fits the pattern"):
        parse(OutputParser("regex", pattern="x{3}"), text)
    with pytest.raises(AnswerError, match="stopped"):
        parse(OutputParser("regex", pattern=r"^(a|a)+$"), "a" * 60 + "!")


@pytest.mark.req("PIPE-6")
@pytest.mark.parametrize(
    ("given", "parser"),
    [
        (None, OutputParser()),
        ("none", OutputParser()),
        ("JSON", OutputParser("json")),
        ({"type": "list", "retry_on_error": False, "max_retries": 3}, OutputParser("list", retries=0)),
        ({"type": "pydantic", "schema": SCHEMA, "max_retries": 3}, OutputParser("json", SCHEMA, retries=3)),
        ({"type": "enum", "values": ["a", "b"]}, OutputParser("choice", choices=("a", "b"))),
        ({"choices": ["a"]}, OutputParser("choice", choices=("a",))),
        (
            {"type": "regex", "pattern": "a+", "fix_prompt": "Again"},
            OutputParser("regex", pattern="a+", fix_prompt="Again"),
        ),
    ],
)
def test_parsers_are_read(given: Any, parser: OutputParser) -> None:
    assert read_parser(given) == (parser, [])


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        (["json"], "output_parser", "expected a word or an object with type, got a list"),
        ("jsn", "type", "got 'jsn'. Did you mean 'json'?"),
        ({"type": 5}, "type", "expected text, json, list"),
        ({"type": "json", "schema": {"type": "objekt"}}, "schema", "expected a JSON Schema: "),
        ({"type": "json", "schema": "x"}, "schema", "expected a JSON Schema, got a string"),
        ({"type": "pydantic", "pydantic_model": "Review"}, "pydantic_model", "Write their JSON Schema as schema"),
        ("choice", "choices", "expected a list of texts to choose from, got nothing"),
        ({"type": "choice", "choices": [1]}, "choices", "got [1]"),
        ("regex", "pattern", "needs a pattern"),
        ({"type": "regex", "pattern": "("}, "pattern", "'(' is not a regular expression"),
        ({"type": "json", "retry_on_error": "yes"}, "retry_on_error", "expected true or false"),
        ({"type": "json", "max_retries": -1}, "max_retries", "from 0 to 10, got -1"),
        ({"type": "json", "max_retry": 1}, "max_retry", "no such key. Did you mean 'max_retries'?"),
    ],
)
def test_what_is_wrong_with_a_parser_is_named(given: Any, key: str, message: str) -> None:
    _, faults = read_parser(given)
    assert len(faults) == 1 and faults[0][0] == key and message in faults[0][1]


ALL = [OutputParser(kind, choices=("a", "b c"), pattern="(a)?b") for kind in KINDS]
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "'",
    "\\",
    "a",
    "1",
    "tru",
    "None",
    "-",
    ".",
    "\n",
    "```",
    "json\n",
    "/*",
    "//",
    " ",
]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.sampled_from(ALL))
def test_any_text_is_parsed_or_refused(text: str, parser: OutputParser) -> None:
    try:
        json.dumps(parse(parser, text).value)
    except AnswerError as fault:
        assert str(fault).startswith("expected ")


@given(JSON, st.sampled_from(["{}", "```json\n{}\n```"]))
def test_json_that_is_json_stays_as_it_is(value: Any, frame: str) -> None:
    text = frame.replace("{}", json.dumps(value, indent=1))
    assert of_kind("json", text).value == value


@given(JSON.filter(lambda value: isinstance(value, dict | list) and bool(value)), st.data())
def test_json_that_breaks_off_is_closed_or_refused(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    try:
        found = of_kind("json", cut)
    except AnswerError:
        return
    assert type(found.value) is type(value)
    assert "closed the end" in found.repair or "fixed the punctuation" in found.repair


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "pieces",
    ["[", '{"a":', "{'", "```\n[", "[/*", "\\", "1,123", "- "],
)
@pytest.mark.parametrize("before", ["", "```" + " " * 50_000 + "[" * 50 + "1, " * 20_000], ids=["alone", "after"])
def test_hostile_text_takes_bounded_time(before: str, pieces: str) -> None:
    text = before + pieces * (100_000 // len(pieces))
    for parser in ALL[1:-1]:
        try:
            parse(parser, text)
        except AnswerError as fault:
            assert len(str(fault)) < 400
