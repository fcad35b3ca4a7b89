"""Inspect samples."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Check, Origin
from evalloom.data.dialect import Rules
from evalloom.interop.inspect_samples import DIALECT

FIELDS = ["id", "input", "target", "choices", "metadata", "files", "setup", "sandbox", "label"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(['{"a": 1}', "['a']", "[{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def test_a_row_of_a_table() -> None:
    row = {
        "id": "q1",
        "input": "Which is the smallest?",
        "target": "A",
        "choices": "1, 2,3",
        "metadata": '{"level": 2, "tags": ["easy"]}',
        "sandbox": '["docker", "compose.yaml"]',
        "files": "",
        "label": "x",
    }
    case = DIALECT.to_case(row, Origin("samples.csv", 2))
    assert case.inputs == {"input": "Which is the smallest?", "choices": ["1", "2", "3"]}
    assert case.checks == (Check("equals", "A", name="target"),)
    assert (case.id, case.tags) == ("q1", ("easy",))
    assert case.meta == {
        "metadata": {"level": 2, "tags": ["easy"]},
        "sandbox": ["docker", "compose.yaml"],
        "label": "x",
    }
    assert codes(row) == []


def test_a_chat_with_several_targets() -> None:
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "image": "a.png"}]}
    ]
    case = DIALECT.to_case({"input": chat, "target": ["bike", 2]}, Origin("samples.jsonl"))
    assert case.inputs == {"messages": chat}
    assert case.checks == (Check("one_of", ["bike", "2"], name="target"),)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"target": "a"}, ["missing_field"]),
        ({"input": {"text": "a"}, "target": "a"}, ["bad_input"]),
        ({"input": "a", "target": ""}, ["no_checks"]),
        ({"input": "a", "target": {"text": "b"}}, ["bad_target"]),
        ({"input": "a", "target": ["b", None]}, ["bad_target"]),
        ({"input": "a", "target": "A", "choices": {"a": 1}}, ["bad_choices"]),
        ({"input": "a", "target": "C", "choices": ["one", "two"]}, ["target_not_in_choices"]),
        ({"input": "a", "target": ["A", "two"], "choices": ["one", "two"]}, []),
        ({"input": "a", "target": "b", "metadata": "not json"}, ["unreadable_cell"]),
    ],
)
def test_findings(record: dict[str, Any], expected: list[str]) -> None:
    assert codes(record) == expected


def test_a_stray_target_is_told_what_was_possible() -> None:
    (remark,) = DIALECT.findings({"input": "a", "target": "Z", "choices": "1,2,3"}, Rules())
    assert remark.message == "target: expected A to C or the text of a choice, got 'Z'"


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    list(DIALECT.findings(record, Rules()))
    assert DIALECT.to_case(record, Origin("samples.jsonl")).raw == record
