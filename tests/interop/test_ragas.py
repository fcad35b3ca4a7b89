"""RAGAS test sets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Check, Origin
from evalloom.data.dialect import Rules
from evalloom.interop.ragas import DIALECT

FIELDS = [
    *("id", "user_input", "reference", "reference_contexts", "retrieved_contexts", "response", "rubrics"),
    *("question", "ground_truth", "ground_truths", "contexts", "answer", "reference_tool_calls", "reference_topics"),
    *("reference_context_ids", "persona_name", "synthesizer_name", "tags"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["['a', 'b']", "[{'type': 'human'}]", "['a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "type", "content"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def test_a_row_with_list_text() -> None:
    row = {
        "user_input": "Who wrote Emma?",
        "reference": "Jane Austen",
        "reference_contexts": "['Emma is a novel by Jane Austen.', \"It's from 1815.\"]",
        "retrieved_contexts": "['Emma' 'Persuasion']",
        "response": "Austen",
        "synthesizer_name": "single_hop",
    }
    case = DIALECT.to_case(row, Origin("testset.csv", 2))
    assert case.inputs == {"user_input": "Who wrote Emma?"}
    assert case.checks == (
        Check("judge", "Jane Austen", name="reference", options={"variant": "reference"}),
        Check(
            "context_recall", ["Emma is a novel by Jane Austen.", "It's from 1815."], "sources", "reference_contexts"
        ),
    )
    assert case.meta["retrieved_contexts"] == ["Emma", "Persuasion"]
    assert codes(row) == []


def test_the_older_names() -> None:
    record = {"question": "Who?", "contexts": ["x"], "ground_truths": ["Austen", "J. Austen"], "answer": "Bronte"}
    case = DIALECT.to_case(record, Origin("testset.jsonl"))
    assert DIALECT.sniff(record) == "it has 'question', 'contexts' and 'ground_truths'"
    assert case.inputs == {"question": "Who?"}
    assert case.checks[0].expected == ["Austen", "J. Austen"]
    assert case.meta == {"contexts": ["x"], "answer": "Bronte"}


def test_a_conversation_goes_in_up_to_the_last_question() -> None:
    talk = [
        {"type": "human", "content": "Book a table"},
        {"type": "ai", "content": "For when?"},
        {"type": "human", "content": "Eight"},
        {"type": "ai", "content": "Booked"},
    ]
    record = {"user_input": talk, "reference": "A table is booked"}
    assert DIALECT.to_case(record, Origin("testset.jsonl")).inputs == {"messages": talk[:3]}
    row = {"user_input": repr(talk), "reference": "A table is booked"}
    assert DIALECT.to_case(row, Origin("testset.csv")).inputs == {"messages": talk[:3]}
    assert codes(record) == codes(row) == []


def test_list_text_that_cannot_be_read_is_one_text_and_a_warning() -> None:
    row = {"user_input": "Who?", "reference": "Austen", "reference_contexts": "['cut off"}
    (remark,) = DIALECT.findings(row, Rules())
    assert (remark.code, remark.severity, remark.path) == ("unreadable_cell", "warning", ("reference_contexts",))
    assert DIALECT.to_case(row, Origin("testset.csv")).checks[1].expected == ["['cut off"]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"reference": "a"}, ["missing_field"]),
        ({"user_input": None, "reference": "a"}, ["bad_input"]),
        ({"user_input": "", "reference": "a"}, ["empty_input"]),
        ({"user_input": "q", "reference": ["a"]}, ["bad_reference"]),
        ({"user_input": "q", "reference": "a", "retrieved_contexts": 5}, ["bad_retrieved_contexts"]),
        ({"user_input": "q", "rubrics": 5}, ["bad_rubrics"]),
        ({"user_input": "q", "response": "a"}, ["no_checks"]),
        ({"question": "q", "contexts": [], "ground_truth": ""}, ["no_checks"]),
    ],
)
def test_findings(record: dict[str, Any], expected: list[str]) -> None:
    assert codes(record) == expected


def test_questions_without_contexts_are_not_ours() -> None:
    assert DIALECT.sniff({"question": "q", "ground_truth": "a"}) == ""
    assert DIALECT.sniff({"user_input": "q"}) == ""


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    list(DIALECT.findings(record, Rules()))
    assert DIALECT.to_case(record, Origin("testset.jsonl")).raw == record
