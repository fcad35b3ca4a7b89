"""Calls of tools."""

from typing import Any

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


CALLS = [
    {"name": "search", "arguments": {"q": "x", "k": 3}},
    {"type": "function", "function": {"name": "mail", "arguments": '{"to": "a@b.c"}'}},
]


def test_names_and_arguments() -> None:
    assert grade("tool_calls", ["mail", "search"], CALLS).passed
    assert grade("tool_calls", [{"name": "search", "args": {"q": "x"}}], {"tool_calls": CALLS}).passed
    assert grade(
        "tool_calls", [{"name": "mail", "input_parameters": {"to": "a@b.c"}}], {"s": {"tool_calls": CALLS}}
    ).passed
    wrong = grade("tool_calls", [{"name": "search", "args": {"q": "y"}}, "mail"], CALLS)
    assert wrong.passed is False and wrong.score == 0.5 and "search" in wrong.reason
    assert grade("tool_calls", [{"name": "search", "args": {"q": "y"}}, "mail"], CALLS, threshold=0.5).passed


def test_order_and_others() -> None:
    assert grade("tool_calls", ["mail", "search"], CALLS, ordered=True).passed is False
    assert grade("tool_calls", ["search", "mail"], CALLS, ordered=True).passed
    assert grade("tool_calls", ["search"], CALLS, exact=True).passed is False
    assert grade("tool_calls", ["search", "search"], CALLS).passed is False


def test_a_bare_name_leaves_the_other_call_alone() -> None:
    made = [{"name": "f", "arguments": {"x": 1}}, {"name": "f", "arguments": {"x": 2}}]
    assert grade("tool_calls", ["f", {"name": "f", "arguments": {"x": 1}}], made).passed


def test_calls_of_a_prompt_are_found_beside_its_text() -> None:
    matcher = by_kind("tool_calls")
    assert matcher is not None and matcher.grade is not None
    seen = MatchContext("text", Output("text", {"tool_calls": CALLS}), Case("c", {}))
    found = [matcher.grade(Check("tool_calls", [name]), seen) for name in ("search", "other")]
    assert [grade and grade.passed for grade in found] == [True, False]


def test_runs_that_tell_no_calls_are_unscored() -> None:
    assert grade("tool_calls", ["f"], "plain text").passed is None
    assert grade("tool_calls", ["f"], {"tool_calls": []}).passed is False
    assert grade("tool_calls", [3], CALLS).passed is None
