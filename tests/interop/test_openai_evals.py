"""OpenAI evals samples."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Check, Origin
from evalloom.data.dialect import Rules
from evalloom.interop.openai_evals import DIALECT

CHAT = [{"role": "system", "content": "Answer with one letter."}, {"role": "user", "content": "A or B?"}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def test_a_chat_goes_in_as_messages_and_the_ideal_does_not() -> None:
    record = {"input": CHAT, "ideal": ["B", "b"], "source": "quiz"}
    case = DIALECT.to_case(record, Origin("samples.jsonl", 3))
    assert case.inputs == {"messages": CHAT}
    assert case.checks == (Check("one_of", ["B", "b"], name="ideal"),)
    assert (case.id, case.meta, case.raw) == ("", {"source": "quiz"}, record)
    assert codes(record) == []


def test_a_text_goes_in_as_input() -> None:
    case = DIALECT.to_case({"input": "2 + 2 =", "ideal": "4", "id": 0}, Origin("samples.jsonl"))
    assert case.inputs == {"input": "2 + 2 ="}
    assert case.checks == (Check("equals", "4", name="ideal"),)
    assert case.id == "0"


def test_only_input_with_ideal_is_recognised() -> None:
    assert DIALECT.sniff({"input": "a", "ideal": "b"}) == "it has 'input' and 'ideal'"
    assert DIALECT.sniff({"input": "a", "target": "b"}) == ""


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"ideal": "4"}, ["missing_field"]),
        ({"input": 4, "ideal": "4"}, ["bad_input"]),
        ({"input": " ", "ideal": "4"}, ["empty_input"]),
        ({"input": [], "ideal": "4"}, ["empty_input"]),
        ({"input": [{"content": "no role"}], "ideal": "4"}, ["bad_message"]),
        ({"input": CHAT[:1], "ideal": "4"}, ["no_user_message"]),
        ({"input": "2 + 2 =", "ideal": 4}, ["bad_ideal"]),
        ({"input": "2 + 2 =", "ideal": []}, ["bad_ideal"]),
        ({"input": "2 + 2 =", "ideal": ["4", ""]}, ["empty_expected"]),
        ({"input": "2 + 2 ="}, ["no_checks"]),
    ],
)
def test_findings(record: dict[str, Any], expected: list[str]) -> None:
    assert codes(record) == expected


def test_a_message_says_what_was_expected() -> None:
    (remark,) = DIALECT.findings({"input": "2 + 2 =", "ideal": [4]}, Rules())
    assert (remark.path, remark.message) == (("ideal", 0), "ideal[0]: expected a string, got 4")


@given(st.dictionaries(st.sampled_from(["id", "input", "ideal", "tags", "metadata"]), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    list(DIALECT.findings(record, Rules()))
    assert DIALECT.to_case(record, Origin("samples.jsonl")).raw == record
