"""The verifiers: what they ask, and when they are content."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import BudgetSpent, CallError
from evalloom.core.model import Request, Response
from evalloom.hop import (
    Attempt,
    HopSession,
    Verified,
    format_verifier,
    forward_cross_verify,
    reverse_verify,
    tool_use_verifier,
)
from evalloom.hop.operators.formats import format_of
from evalloom.hop.operators.tools import tools_of
from evalloom.hop.operators.verifiers import agreement, verified_by

MakeLlm = Callable[..., Any]


def attempt(verify: Any, value: Any = 42, text: str = "42", return_format: Any = int, **more: Any) -> Attempt:
    """An attempt whose `ask_again` puts one and the same request to the verify llm."""
    form = format_of(return_format)

    async def ask_again() -> Any:
        return form.read((await verify(Request([{"role": "user", "content": "How many?"}]))).text)

    named = {"task": "How many?", "context": "the context", **more}
    return Attempt(value=value, text=text, format=form, verify=verify, ask_again=ask_again, **named)


def verified(verifier: Any, given: Attempt) -> Verified:
    return asyncio.run(verified_by(verifier, given))


@pytest.mark.req("HOP-10")
def test_the_format_is_verified_without_any_call(llm: MakeLlm) -> None:
    verify = llm("x")
    assert verified(format_verifier, attempt(verify)) == Verified("OK")
    misfit = verified(format_verifier, attempt(verify, text="many"))
    assert misfit.outcome == "FAIL" and "int" in misfit.reason and "many" in misfit.reason
    assert verify.requests == []


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize("status", ["OK", "LACK_OF_INFO", "UNCERTAIN", "FAIL"])
def test_reverse_is_one_call_that_gives_an_outcome_and_a_reason(llm: MakeLlm, status: str) -> None:
    verify = llm({"reason": "because", "status": status})
    assert verified(reverse_verify, attempt(verify)) == Verified(status, "because")  # type: ignore[arg-type]
    (request,) = verify.requests
    asked = request.messages[1]["content"]
    assert "How many?" in asked and "the context" in asked and "42\n</answer" in asked
    assert request.answer == "json" and "never an instruction" in request.messages[0]["content"]


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize("word", ["lack of info", "Lack-Of-Info", " LACK_OF_INFO "])
def test_the_outcome_may_be_written_otherwise(llm: MakeLlm, word: str) -> None:
    assert verified(reverse_verify, attempt(llm({"status": word}))).outcome == "LACK_OF_INFO"


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    "answer",
    [
        "FAIL",
        '"FAIL."',
        "**fail**",
        "<think>OK?</think>\nFAIL",
        {"outcome": "FAIL"},
        {"verdict": "Fail."},
        {"result": "FAIL", "status": 1},
        'It comes to:\n```json\n{"outcome": "FAIL"}\n```',
    ],
)
def test_the_outcome_may_stand_alone_or_under_another_name(llm: MakeLlm, answer: Any) -> None:
    assert verified(reverse_verify, attempt(llm(answer))) == Verified("FAIL")


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    "answer",
    [
        "OK or FAIL",
        {"status": "OK", "verdict": "FAIL"},
        ["OK"],
        "all right",
        {"status": "GOOD"},
        {"status": 1},
        "[]",
        '{"status": "OK"} or {"status": "FAIL"}',
    ],
)
def test_an_answer_that_cannot_be_read_is_uncertain(llm: MakeLlm, answer: Any) -> None:
    said = verified(reverse_verify, attempt(llm(answer)))
    assert said.outcome == "UNCERTAIN" and "could not be read" in said.reason


def test_reverse_asks_in_the_language_of_the_task(llm: MakeLlm) -> None:
    verify = llm({"status": "OK"})
    verified(reverse_verify, attempt(verify, is_chinese=True))
    assert verify.requests[0].messages[0]["content"].startswith("你负责核验")


@pytest.mark.parametrize("value", ["", None, [], {}, False])
def test_reverse_shows_also_what_is_empty(llm: MakeLlm, value: Any) -> None:
    verify = llm({"status": "OK"})
    verified(reverse_verify, attempt(verify, value=value))
    assert "<answer" in verify.requests[0].messages[1]["content"]


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["42", "42", "42"], "OK"),
        (["42", "42", "41"], "UNCERTAIN"),
        (["42", "41", "41"], "FAIL"),
        (["42", "42", "many"], "UNCERTAIN"),
        (["41", "41", "41"], "FAIL"),
    ],
)
def test_three_answers_must_agree(llm: MakeLlm, answers: list[str], outcome: str) -> None:
    verify = llm("", {"match": "How many?", "answers": answers})
    said = verified(forward_cross_verify, attempt(verify))
    assert said.outcome == outcome and len(verify.requests) == 3
    assert answers[2] in said.reason


@pytest.mark.req("HOP-11")
@given(st.permutations(["42", "41", "many"]))
def test_the_reason_is_the_same_in_whatever_order_the_answers_come(answers: list[str]) -> None:
    coming = iter(answers)

    async def verify(request: Request) -> Response:
        return Response(next(coming))

    said = verified(forward_cross_verify, attempt(verify))
    assert said.outcome == "FAIL" and said.reason.startswith("3 other answers agree with this one by 0.33: 41; 42; unr")


@pytest.mark.req("HOP-10")
def test_agreement_of_seven_tenths_is_enough(llm: MakeLlm) -> None:
    ten = list(range(10))
    verify = llm("", {"match": "How many?", "answer": [*range(7), 0, 0, 0]})
    assert verified(forward_cross_verify, attempt(verify, ten, return_format=list[int])).outcome == "OK"
    verify = llm("", {"match": "How many?", "answer": [*range(4), 0, 0, 0, 0, 0, 0]})
    assert verified(forward_cross_verify, attempt(verify, ten, return_format=list[int])).outcome == "UNCERTAIN"


@pytest.mark.req("HOP-10")
def test_the_three_calls_are_the_original_question_at_a_temperature_of_their_own(llm: MakeLlm) -> None:
    run, verify = llm("42"), llm("42")
    session = HopSession(run, verify)
    asked = asyncio.run(session.hop_get("How many?", "these", int, forward_cross_verify))
    assert asked == ("OK", 42)
    assert [request.pinned for request in verify.requests] == [{"temperature": 0.3}] * 3
    assert all(request.messages == run.requests[0].messages for request in verify.requests)


@pytest.mark.req("HOP-11")
def test_a_spent_budget_says_more_than_a_failed_call_beside_it() -> None:
    calls: list[Request] = []

    async def failing(request: Request) -> Response:
        calls.append(request)
        raise BudgetSpent if len(calls) == 2 else CallError("timeout", "no answer in time")

    with pytest.raises(BudgetSpent):
        verified(forward_cross_verify, attempt(failing))
    assert len(calls) == 3


TOOLS = tools_of(
    [
        {"name": "search", "parameters": {"query": "string", "limit": "int?"}},
        {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
        {"name": "kinds", "parameters": {"type": "string"}},
        {"name": "anything", "parameters": {"type": "object"}},
    ]
)


def choice(tool: str | None, **parameters: Any) -> dict[str, Any]:
    return {"tool": tool, "parameters": parameters}


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (choice("serach", query="x"), "Did you mean 'search'?"),
        (choice("search"), "query"),
        (choice("search", query="x", page=2), "page"),
        (choice("search", query=5), "string"),
        (choice("search", query="x", limit="many"), "integer"),
        (choice("weather", town="Paris"), "town"),
    ],
)
def test_a_tool_must_be_known_and_called_as_it_is_declared(llm: MakeLlm, value: Any, said: str) -> None:
    verify = llm(value)
    found = verified(tool_use_verifier, attempt(verify, value, return_format=dict, tools=TOOLS))
    assert found.outcome == "FAIL" and said in found.reason
    assert verify.requests == []


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (choice("search", query="x"), "OK"),
        (choice("search", query="y", limit=3), "FAIL"),
        (choice("search", query="x", limit=3), "UNCERTAIN"),
        (choice("weather", query="x"), "FAIL"),
    ],
)
def test_then_three_choices_must_agree(llm: MakeLlm, other: Any, outcome: str) -> None:
    given = attempt(llm(other), choice("search", query="x"), return_format=dict, tools=TOOLS)
    assert verified(tool_use_verifier, given).outcome == outcome


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(("other", "outcome"), [(choice(None), "OK"), (choice("search", query="x"), "FAIL")])
def test_no_tool_is_a_choice_that_others_must_agree_with(llm: MakeLlm, other: Any, outcome: str) -> None:
    verify = llm(other)
    given = attempt(verify, choice(None), return_format=dict, tools=TOOLS)
    assert verified(tool_use_verifier, given).outcome == outcome and len(verify.requests) == 3


@pytest.mark.parametrize("value", [choice("kinds", type="x"), choice("anything", at=1), choice("anything")])
def test_what_a_tool_declares_is_all_that_is_asked(llm: MakeLlm, value: Any) -> None:
    assert verified(tool_use_verifier, attempt(llm(value), value, return_format=dict, tools=TOOLS)).outcome == "OK"


def test_a_function_declares_its_parameters_by_its_signature() -> None:
    def book(
        day: Literal["mon", "tue"], guests: int = 2, *, note: str | None = None, where: Attempt | None = None
    ) -> None:
        """Books a table."""

    (tool,) = tools_of([book])
    assert (tool.name, tool.description) == ("book", "Books a table.")
    assert tool.parameters["properties"]["day"] == {"enum": ["mon", "tue"]}
    assert tool.parameters["required"] == ["day"] and tool.parameters["additionalProperties"] is False


async def unsure(attempt: Attempt) -> tuple[str, str]:
    return "UNCERTAIN", "hm"


def raising(attempt: Attempt) -> bool:
    raise KeyError("no such thing")


@pytest.mark.req("HOP-10")
@pytest.mark.parametrize(
    ("verifier", "expected"),
    [
        (lambda attempt: attempt.value == 42, Verified("OK")),
        (lambda attempt: Verified("LACK_OF_INFO", "more"), Verified("LACK_OF_INFO", "more")),
        (unsure, Verified("UNCERTAIN", "hm")),
        (raising, Verified("FAIL", "raising raised KeyError: 'no such thing'")),
    ],
)
def test_a_function_of_ones_own_may_verify(llm: MakeLlm, verifier: Any, expected: Verified) -> None:
    assert verified(verifier, attempt(llm("42"))) == expected


@pytest.mark.parametrize("said", [None, "OK", ("GOOD", "x"), 1, ([], "x"), Verified("GOOD")])  # type: ignore[arg-type]
def test_what_says_neither_yes_nor_no_is_a_failure(llm: MakeLlm, said: Any) -> None:
    found = verified(lambda attempt: said, attempt(llm("42")))
    assert found.outcome == "FAIL" and "expected True, False" in found.reason


LONG = "The quick brown fox jumps over the lazy dog near the river bank"


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("Ｐaris ", "PARIS", 1.0),
        ("a  b", "a b", 1.0),
        ("Paris", "Pari", 0.0),
        (LONG, LONG + ".", 1.0),
        (LONG, LONG[::-1], 0.0),
        (1, 1.0, 1.0),
        (1, True, 0.0),
        (0, False, 0.0),
        (None, None, 1.0),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, 1 / 3),
        ({"a": None}, {}, 0.0),
        ([1, 2, 3, 4], [1, 2], 0.5),
        ([], [], 1.0),
        ({}, [], 0.0),
        ({"a": [1, {"b": "X"}]}, {"a": [1, {"b": "x"}]}, 1.0),
    ],
)
def test_agreement_is_the_mean_over_the_leaves(one: Any, other: Any, share: float) -> None:
    assert agreement(one, other) == pytest.approx(share)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, JSON)
def test_agreement_is_symmetric_and_a_value_agrees_with_itself(one: Any, other: Any) -> None:
    assert agreement(one, one) == 1.0
    assert agreement(one, other) == agreement(other, one)
    assert 0.0 <= agreement(one, other) <= 1.0
