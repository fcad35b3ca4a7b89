"""Pydantic Evals datasets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Check, Origin, Record, Remark
from evalloom.data.dialect import Included, Rules
from evalloom.interop.pydantic_evals import DIALECT

NAMES = [
    "Equals",
    "EqualsExpected",
    "Contains",
    "IsInstance",
    "MaxDuration",
    "LLMJudge",
    "HasMatchingSpan",
    "name",
    "arguments",
    "cases",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["name", "inputs", "expected_output", "metadata", "evaluators", "dataset", "cases"]


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def expanded(document: Record) -> tuple[list[Record], list[Remark]]:
    items = list(DIALECT.expand(document) or ())
    remarks = [item for item in items if isinstance(item, Remark)]
    return [item[1] for item in items if not isinstance(item, Remark | Included)], remarks


def test_cases_are_read_with_the_evaluators_of_their_dataset() -> None:
    case = {"name": "hello", "inputs": {"text": "hi"}, "expected_output": "HI", "evaluators": ["EqualsExpected"]}
    (record,), remarks = expanded({"name": "upper", "cases": [case], "evaluators": [{"LLMJudge": "is polite"}]})
    found = DIALECT.to_case(record, Origin("upper.yaml", 2))
    assert (found.id, found.inputs) == ("hello", {"text": "hi"})
    assert found.checks == (Check("equals", "HI", name="EqualsExpected"), Check("judge", "is polite", name="LLMJudge"))
    assert remarks == [] and found.meta == {}


@pytest.mark.parametrize(
    ("written", "check"),
    [
        (
            {"Contains": {"value": "x", "case_sensitive": False}},
            Check("icontains", "x", name="Contains", options={"case_sensitive": False}),
        ),
        ({"Equals": {"a": 1}}, Check("equals", {"a": 1}, name="Equals")),
        ({"IsInstance": "str"}, Check("is_instance", "str", name="IsInstance")),
        ({"MaxDuration": 1.5}, Check("latency", None, name="MaxDuration", options={"threshold": 1500.0})),
        ({"name": "LLMJudge", "arguments": ["is polite"]}, Check("judge", "is polite", name="LLMJudge")),
        ({"LLMJudge": {"rubric": "r", "evaluation_name": "tone"}}, Check("judge", "r", name="tone")),
        ("IsConcise", Check("is_concise", None, name="IsConcise")),
    ],
)
def test_each_way_to_write_an_evaluator(written: Any, check: Check) -> None:
    assert DIALECT.to_case({"inputs": "a", "evaluators": [written]}, Origin("x.yaml")).checks == (check,)


def test_an_expected_output_is_compared_only_where_nothing_else_is() -> None:
    bare = DIALECT.to_case({"inputs": "a", "expected_output": "A"}, Origin("x.yaml"))
    assert bare.checks == (Check("equals", "A", name="expected_output"),)
    judged = DIALECT.to_case(
        {"inputs": "a", "expected_output": "A", "evaluators": [{"LLMJudge": "r"}]}, Origin("x.yaml")
    )
    assert [check.kind for check in judged.checks] == ["judge"]
    assert judged.meta == {"expected_output": "A"}


def test_a_fault_of_the_dataset_is_said_once() -> None:
    cases = [{"inputs": "a"}, {"inputs": "b"}, "stray"]
    records, remarks = expanded({"cases": cases, "evaluators": ["LLMJuge"]})
    assert len(records) == 2
    assert [remark.code for remark in remarks] == ["unknown_evaluator", "json_not_object"]
    assert remarks[0].message.endswith("got 'LLMJuge'. Did you mean 'LLMJudge'?")
    assert codes(records[0]) == []


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"expected_output": "A"}, ["missing_field"]),
        ({"inputs": {}, "expected_output": "A"}, ["empty_input"]),
        ({"inputs": "a", "expected_output": "A", "name": 5}, ["bad_name"]),
        ({"inputs": "a"}, ["no_checks"]),
        ({"inputs": "a", "evaluators": "LLMJudge"}, ["bad_evaluators", "no_checks"]),
        ({"inputs": "a", "evaluators": [{"a": 1, "b": 2}]}, ["bad_evaluators", "no_checks"]),
        ({"inputs": "a", "evaluators": ["LLMJudge"]}, ["bad_evaluators"]),
        ({"inputs": "a", "evaluators": [{"MaxDuration": "fast"}]}, ["bad_threshold"]),
    ],
)
def test_findings(record: dict[str, Any], expected: list[str]) -> None:
    assert codes(record) == expected


def test_pipeline_cases_under_cases_are_left_alone() -> None:
    assert DIALECT.expand({"cases": [{"id": "1", "inputs": {}, "expected_outputs": {}}]}) is None
    assert DIALECT.expand({"cases": [{"input": "a"}]}) is None


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    list(DIALECT.expand(record) or ())
    list(DIALECT.findings(record, Rules()))
    assert DIALECT.to_case(record, Origin("x.yaml")).raw == record
