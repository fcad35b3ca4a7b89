"""JSON in answers: where it is found, what is repaired, and what is refused because its meaning is unclear."""

import json
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.llms.answer_json import (
    NO_JSON,
    AnswerError,
    find_json,
    loads,
    object_in,
    only_object,
    strip_fence,
    strip_reasoning,
)

# Answers with defects as llms produce them, and the value that a person reads in each.
REPAIRED = {
    "comma missing between fields": ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
    "comma missing between lines": ('{\n  "name": "Ada"\n  "age": 36\n}', {"name": "Ada", "age": 36}),
    "comma missing in a list": ('["red" "green", "blue"]', ["red", "green", "blue"]),
    "comma missing between objects": ('[{"a": 1} {"a": 2}]', [{"a": 1}, {"a": 2}]),
    "comma trailing": ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
    "single quotes": ("{'a': 'x', 'b': [1]}", {"a": "x", "b": [1]}),
    "apostrophe in single quotes": ("{'a': 'it's fine', 'b': 1}", {"a": "it's fine", "b": 1}),
    "quotes inside a text": ('{"a": "she said "no" twice", "b": 1}', {"a": 'she said "no" twice', "b": 1}),
    "quotes at the end of a text": ('{"a": "the word "late"", "b": 1}', {"a": 'the word "late"', "b": 1}),
    "typographic quotes": ("{“a”: “x”, “b”: 2}", {"a": "x", "b": 2}),
    "bare keys": ('{name: "Ada", age: 36}', {"name": "Ada", "age": 36}),
    "bare words as values": ('{"status": ok, "level": high}', {"status": "ok", "level": "high"}),
    "closing quote missing": ('{"a": "x, "b": 2}', {"a": "x", "b": 2}),
    "opening quote missing": ('{"a": x", "b": 2}', {"a": "x", "b": 2}),
    "wrong closing bracket": ('{"a": [1, 2}, "b": 3}', {"a": [1, 2], "b": 3}),
    "one closing bracket too many": ('{"a": {"b": 1}}}', {"a": {"b": 1}}),
    "cut in a text": ('{"a": [1, 2], "b": "unfin', {"a": [1, 2], "b": "unfin"}),
    "cut in a list, comma missing": ('[{"a": 1} {"a": 2}, {"a": 3', [{"a": 1}, {"a": 2}, {"a": 3}]),
    "Python's literals": ('{"a": True, "b": None}', {"a": True, "b": None}),
    "literals in capitals": ('{"a": TRUE, "b": NULL}', {"a": True, "b": None}),
    "comments": ('{"a": 1, // one\n "b": 2 /* two */}', {"a": 1, "b": 2}),
    "plus sign": ('{"a": +1, "b": 2}', {"a": 1, "b": 2}),
    "line break in a text": ('{"a": "x\ny"}', {"a": "x\ny"}),
    "stray backslash": ('{"a": "\\d+", "b": 1}', {"a": "\\d+", "b": 1}),
    "fence, comma missing": ('```json\n{"a": 1 "b": 2}\n```', {"a": 1, "b": 2}),
    "fence with prose around, comma missing": ('Here:\n```json\n{"a": 1 "b": 2}\n```\nDone.', {"a": 1, "b": 2}),
    "fence cut, comma missing": ('```json\n{"a": 1 "b": 2', {"a": 1, "b": 2}),
    "prose after, comma missing": ('{"a": 1 "b": 2}\nI hope this helps.', {"a": 1, "b": 2}),
    "prose after, quotes inside": ('{"a": "so "big" it is"}\n\nNote: it is big.', {"a": 'so "big" it is'}),
    "reasoning first": ('<think>{"a": 0}?</think>{"a": 1}', {"a": 1}),
    "reasoning first, comma missing": ('<think>maybe {"a": 0}</think>\n{"a": 1 "b": 2}', {"a": 1, "b": 2}),
    "the last quote is missing": ('{"a": 3, "b": "it is}', {"a": 3, "b": "it is"}),
}
# A person reads a value in these, and the readers do not: the llm is asked again.
NOT_REPAIRED = {
    "the last quote of a list is missing": ('{"k0": ["x y, "z"]}', {"k0": ["x y", "z"]}),
    "the opening bracket of a list is missing": ('{"a": "x", "z"], "b": [1, 2]}', {"a": ["x", "z"], "b": [1, 2]}),
    "comma doubled": ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}),
    "colon missing": ('{"a" 1, "b": 2}', {"a": 1, "b": 2}),
    "equals for colon": ('{"a" = 1, "b" = "x"}', {"a": 1, "b": "x"}),
    "hash comments": ('{\n "a": 1, # one\n "b": 2\n}', {"a": 1, "b": 2}),
    "decimal point first": ('{"a": .5, "b": 2}', {"a": 0.5, "b": 2}),
    "triple quotes": ('{"a": """x""", "b": 1}', {"a": "x", "b": 1}),
    "object inside a broken one": ('{"a" 1, "b": {"c": 2}}', {"a": 1, "b": {"c": 2}}),
}
UNCLEAR = {
    "thousands": '{"a": 1,234, "b": 2}',
    "texts joined by plus": '{"a": "x" + "y"}',
    "bracket missing at the start": '"a": 1, "b": 2}',
    "a hole of a template": "{name}",
    "a set of words": "{red, green}",
    "prose in brackets": "[see the note below]",
    "prose in brackets, then more": "[Note] I cannot answer this: no data.",
    "NaN": '{"a": NaN}',
    "Infinity": '{"a": -Infinity}',
    "value missing": '{"a": , "b": 2}',
    "key without value": '{"a": 1, "b"}',
    "code": "{ return a[0]; }",
    "a key that swallows the text": '{"a: 1, "b": 2}',
    "number too large": "[1e999,]",
    "nothing but an opening bracket": "{",
    "LaTeX": "[x = \\frac{1}{2}]",
    "fence of another language": "```python\nx = {'a': b}\n```",
    "refusal after a bracket": '{"error"} is all that I can say',
    "an ellipsis in a list": '{"a": [1, 2, ...], "b": 3}',
    "words that are no values": '{"a": undefined "b": 1}',
    "a sign apart from its number": '{"a": - 5 "b": 1}',
    "a thousands space": '{"a": 1 000, "b" 2}',
    "reasoning cut off": '<think>maybe {"a": 0}',
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLAIN = st.booleans() | st.integers() | st.text("ab ,:'é", max_size=8)
RECORDS = st.dictionaries(st.text("abc", min_size=1), PLAIN | st.lists(PLAIN, min_size=1, max_size=3), min_size=1)


def repaired(text: str) -> list[Any]:
    return [answer.value for answer in find_json(text, malformed="repair")]


@pytest.mark.parametrize(("text", "value"), REPAIRED.values(), ids=REPAIRED)
def test_malformed_json_is_repaired_where_its_meaning_is_clear(text: str, value: Any) -> None:
    answer = next(find_json(text, malformed="repair"))
    # As texts, because 1 == True == 1.0.
    assert repr(answer.value) == repr(value) and answer.repair


@pytest.mark.parametrize("text", [*(text for text, _ in NOT_REPAIRED.values()), *UNCLEAR.values()])
def test_no_value_is_guessed(text: str) -> None:
    assert repaired(text) == []


def test_the_repair_says_where_the_json_was_malformed() -> None:
    (answer,) = find_json('<think>?</think>{"a": 1 "b": 2}', malformed="repair")
    assert answer.repair == (
        "left out the reasoning, fixed the punctuation of malformed JSON (expecting ',' delimiter at character 9)"
    )


@given(RECORDS, st.data())
def test_a_repair_adds_and_drops_no_words(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False)
    place = data.draw(st.sampled_from([place for place, sign in enumerate(text) if sign in '{}[],:"']))
    damaged = text[:place] + text[place + 1 :]
    for answer in repaired(damaged):
        words = " ".join(re.findall(r"\w+", json.dumps(answer, ensure_ascii=False)))
        assert words in " ".join(re.findall(r"\w+", damaged))


def test_json_repair_is_loaded_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "json_repair", raising=False)
    assert repaired('{"a": 1,}') == [{"a": 1}] and "json_repair" not in sys.modules
    assert repaired('{"a": 1 "b": 2}') and "json_repair" in sys.modules


@pytest.mark.parametrize("text", ["[" * 4_999, "{'" * 2_499, '{"a": "x" y" ' * 300, "{" + '\\"' * 2_400 + "}"])
@pytest.mark.timeout(30)
def test_hostile_text_is_refused_in_bounded_time(text: str) -> None:
    assert repaired(text) == []


# -- reasoning and fences -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>41?</think>\n42", "42"),
        ("41?\n</think>\n\n42", "42"),
        (" <think>a</think><think>b</think> 42", "42"),
        ("<think>41", ""),
        ("use <think> and </think>", "use <think> and </think>"),
        ("<think>a</think>the tag </think> ends it", "the tag </think> ends it"),
        ('{"a": "x</think>y"}', '{"a": "x</think>y"}'),
        ('It is {"a": "x</think>y"}', 'It is {"a": "x</think>y"}'),
        ("<think>not <think>, or <think>41</think>?</think> 42", "42"),
        ("<think>no <think> tags, they said</think>42", "42"),
        ("<Thinking>41?</Thinking>42", "42"),
        ("<seed:think>41?</seed:think>42", "42"),
        ("◁think▷41?◁/think▷42", "42"),
        ("42", "42"),
    ],
)
def test_reasoning_is_left_out(text: str, answer: str) -> None:
    assert strip_reasoning(text) == answer


@pytest.mark.parametrize(
    ("text", "inner"), [("```json\n[1]\n```", "[1]\n"), (" ```\nx``` ", "x"), ("a ```\nx\n```", "a ```\nx\n```")]
)
def test_one_fence_is_stripped(text: str, inner: str) -> None:
    assert strip_fence(text) == inner


# -- strict readers -----------------------------------------------------------------------------------


@given(JSON)
def test_json_stays_as_it_is(value: Any) -> None:
    text = json.dumps(value)
    assert loads(text) == value
    for malformed in ("skip", "refuse", "repair"):
        assert [answer.value for answer in find_json(text, malformed=malformed)] == [value]


def test_numbers_are_exact_and_finite() -> None:
    assert loads("123456789012345678901234567890") == 123456789012345678901234567890
    assert [loads(text) is NO_JSON for text in ("1e999", "NaN", "", "x", "[" * 100_000)] == [True] * 5


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('See [1] and {"a": 1}.', [[1], {"a": 1}]),
        ('{"x": 1}\n```json\n{"a": 1}\n```', [{"a": 1}]),
        ('```json\n{"a": 1}', [{"a": 1}]),
        ('{"a" 1, "b": {"c": 2}}', [{"c": 2}]),
        ('<think>{"a": 0}</think> is {"a": 1}', [{"a": 1}]),
        ('Sure. <think>{"a": 0}</think> {"a": 1}', [{"a": 1}]),
        ('Sure. <think>```json\n{"a": 0}\n```</think> {"a": 1}', [{"a": 1}]),
        ('Use <think> for {"a": 1}', [{"a": 1}]),
        ('{"a": "<think>1</think>"} and so on', [{"a": "<think>1</think>"}]),
        ("no JSON", []),
    ],
)
def test_valid_json_is_found_in_the_order_of_the_text(text: str, values: list[Any]) -> None:
    assert [answer.value for answer in find_json(text)] == values
    assert object_in(text) == next((value for value in values if isinstance(value, dict)), NO_JSON)


@pytest.mark.parametrize("text", ['{"a" 1, "b": {"c": 2}}', 'Here: {"a": [1, 2', '[{"a": 1} {"a": 2}]'])
def test_malformed_json_is_refused_with_its_inner_values(text: str) -> None:
    with pytest.raises(AnswerError, match="expected JSON, got"):
        list(find_json(text, malformed="refuse"))


def test_reasoning_inside_a_malformed_value_is_part_of_it() -> None:
    (answer,) = find_json('So: {"a": "<think>1</think>", }', malformed="repair")
    assert answer.value == {"a": "<think>1</think>"}


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '```json\n{"a": 1}\n```', ' \ufeff{"a": 1}\n', '<think>{"a": 0}</think>\n{"a": 1}']
)
def test_an_answer_is_one_object(text: str) -> None:
    assert only_object(text) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "3", '{"a": 1} {"a": 2}', 'Here: {"a": 1}', '```\n{"a": 1}\n```!', '{"a": NaN}', "no JSON"],
)
def test_anything_but_one_object_is_refused(text: str) -> None:
    with pytest.raises(AnswerError, match="one JSON object"):
        only_object(text)


def test_a_key_stands_once_in_an_object() -> None:
    with pytest.raises(AnswerError, match="a: is there more than once"):
        only_object('{"b": {"a": 1, "a": 2}}')
