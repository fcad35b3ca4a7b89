"""Where a check looks."""

from typing import Any

import pytest

from evalloom.core.model import Output
from evalloom.matchers.where import Missing, find


@pytest.mark.parametrize(
    ("where", "value", "found"),
    [
        ("output", "text", "text"),
        ("output", {"output": "x", "b": 1}, "x"),
        ("output", {"b": 1}, {"b": 1}),
        ("output.output", "text", "text"),
        ("output.b", {"b": 1}, 1),
        ("output.b", '{"b": 1}', 1),
        ("output.b", 'Here it is:\n```json\n{"b": 1}\n```\nDone.', 1),
        ("output.b", 'See [1]: the answer is {"b": 1}.', 1),
        ("output.a.b[0]", {"a": {"b": [7, 8]}}, 7),
        ("output.a.b[-1]", {"a": {"b": [7, 8]}}, 8),
        ("output.a.b", {"a.b": 5}, 5),
        ("output['a.b'].c", {"a.b": {"c": 5}}, 5),
        ("output[1]", [1, 2], 2),
        ("output[1]", "[1, 2]", 2),
        ("output[1]", "<think>[3, 4]?</think>[1, 2]", 2),
        ("output.b", '{"b": 12345678901234567890123}', 12345678901234567890123),
        ("output.结果", {"结果": None}, None),
    ],
)
def test_places_of_the_output(where: str, value: Any, found: Any) -> None:
    assert find(where, Output(value)) == found


def test_other_places() -> None:
    output = Output("x", {"s.1": {"a": [3]}, "plain": '{"k": 2}'}, [1], ["doc.md"], "LACK_OF_INFO")
    assert find("steps.s.1", output) == {"a": [3]}
    assert find("steps.plain.k", output) == 2
    assert find("steps", output) == output.steps
    assert find("aggregation[0]", output) == 1
    assert find("sources", output) == ["doc.md"]
    assert find("outcome", output) == "LACK_OF_INFO"
    assert find("sources", Output({"answer": "x", "sources": ["a"]})) == ["a"]


def test_what_is_missing_says_what_there_is() -> None:
    missing = find("output.c", Output({"a": 1, "b": 2}))
    assert missing == Missing("output.c: is not there; output has the fields a, b")
    assert "without a JSON object" in find("output.c", Output("plain")).reason
    assert "output.a[5]: is not there; output.a is a list of 1" in find("output.a[5]", Output({"a": [1]})).reason
    assert find("aggregation", Output("x")).reason == "aggregation: the run gave none"
    assert find("steps.x", Output("x")).reason == "steps.x: is not there; steps has no fields"


def test_a_place_that_does_not_exist() -> None:
    missing = find("answer", Output({"answer": 1}))
    assert missing.is_misplaced and "Did you mean 'output.answer'?" in missing.reason
    assert find("output.a..b", Output({"a": 1})).is_misplaced


def test_a_text_full_of_brackets_takes_no_time() -> None:
    assert isinstance(find("output.a", Output("[" * 200_000)), Missing)
    assert isinstance(find("output.a", Output('{"a' * 50_000)), Missing)
