"""DeepEval goldens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Check, Origin
from evalloom.data.dialect import Rules
from evalloom.interop.deepeval import DIALECT

FIELDS = [
    *("id", "name", "input", "actual_output", "actualOutput", "expected_output", "expectedOutput", "context"),
    *("retrieval_context", "retrievalContext", "tools_called", "expected_tools", "additional_metadata", "source_file"),
    *("scenario", "turns", "expected_outcome", "user_description", "tags", "comments"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["a|b", '[{"role": "user"}]', "[1]"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
TURNS = [
    {"role": "user", "content": "Refund, please."},
    {"role": "assistant", "content": "Which order?"},
    {"role": "user", "content": "Number 7."},
    {"role": "assistant", "content": "Done."},
]


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def test_what_a_system_once_did_never_goes_in() -> None:
    row = {
        "input": "Capital of France?",
        "actual_output": "Lyon",
        "expected_output": "Paris",
        "retrieval_context": "cities|countries",
        "context": "",
        "tools_called": '[{"name": "search"}]',
        "expected_tools": '[{"name": "lookup"}]',
        "name": "capital",
    }
    case = DIALECT.to_case(row, Origin("goldens.csv", 2))
    assert (case.id, case.inputs) == ("capital", {"input": "Capital of France?"})
    assert case.checks[0] == Check("judge", "Paris", name="expected_output", options={"variant": "reference"})
    assert case.checks[1] == Check("tool_calls", [{"name": "lookup"}], "steps", name="expected_tools")
    assert case.meta["retrieval_context"] == ["cities", "countries"]
    assert case.meta["tools_called"] == [{"name": "search"}]
    assert codes(row) == []


def test_camel_case_means_the_same() -> None:
    record = {"input": "2 + 2", "expectedOutput": "4", "additionalMetadata": {"tags": ["maths"]}}
    case = DIALECT.to_case(record, Origin("goldens.json"))
    assert DIALECT.sniff(record) == "it has 'input' and 'additionalMetadata'"
    assert case.checks[0].expected == "4"
    assert case.tags == ("maths",)
    (remark,) = DIALECT.findings({**record, "expectedOutput": 4}, Rules())
    assert remark.message == "expectedOutput: expected a string, got 4"


def test_a_scenario_goes_in_without_its_turns() -> None:
    record = {"scenario": "A refund", "turns": TURNS, "expected_outcome": "Money back", "user_description": "Polite"}
    case = DIALECT.to_case(record, Origin("goldens.json"))
    assert case.inputs == {"scenario": "A refund", "user_description": "Polite"}
    assert case.meta == {"turns": TURNS}
    assert case.checks[0].expected == "Money back"


def test_turns_alone_go_in_up_to_the_last_question() -> None:
    case = DIALECT.to_case({"turns": TURNS, "expected_outcome": "Money back"}, Origin("goldens.json"))
    assert case.inputs == {"messages": TURNS[:3]}


@pytest.mark.parametrize(
    ("record", "is_ours"),
    [
        ({"input": "a", "expected_output": "b"}, True),
        ({"input": "a", "actual_output": "b"}, True),
        ({"id": "1", "input": "a", "expected_output": "b"}, False),
        ({"id": "1", "input": "a", "retrieval_context": []}, True),
        ({"scenario": "a", "expected_outcome": "b"}, True),
        ({"scenario": "a"}, False),
        ({"expected_output": "b"}, False),
        ({"question_id": 1, "turns": ["a", "b"]}, False),
    ],
)
def test_only_its_own_marks_are_recognised(record: dict[str, Any], is_ours: bool) -> None:
    assert bool(DIALECT.sniff(record)) == is_ours


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"expected_output": "b"}, ["missing_field"]),
        ({"input": ["a"], "expected_output": "b"}, ["bad_input"]),
        ({"input": "", "expected_output": "b"}, ["empty_input"]),
        ({"input": "a", "actual_output": "b"}, ["no_checks"]),
        ({"input": "a", "expected_output": "b", "context": 5}, ["bad_context"]),
        ({"input": "a", "expected_output": "b", "tools_called": "not json"}, ["unreadable_cell"]),
        ({"input": "a", "expected_tools": [{"id": 1}]}, ["bad_expected_tools"]),
        ({"scenario": "a", "expected_outcome": "b", "turns": "not json"}, ["bad_turns"]),
        ({"scenario": "a", "expected_outcome": "b", "turns": ["a"]}, ["bad_message"]),
    ],
)
def test_findings(record: dict[str, Any], expected: list[str]) -> None:
    assert codes(record) == expected


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    list(DIALECT.findings(record, Rules()))
    assert DIALECT.to_case(record, Origin("goldens.json")).raw == record
