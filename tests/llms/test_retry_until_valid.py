"""What has not the form that was asked for is asked for again, with the fault named."""

import asyncio
from typing import Any

import pytest

from evalloom.core.model import Request, Response
from evalloom.llms.retry_until_valid import TRIES, Best, Unreadable, ask, object_of


def asked(*answers: str) -> tuple[Best[str], list[Request]]:
    seen: list[Request] = []

    async def llm(request: Request) -> Response:
        seen.append(request)
        return Response(answers[len(seen) - 1])

    def read(text: str) -> Best[str]:
        return Best(text, tuple(f"no {sign}" for sign in "abc" if sign not in text))

    return asyncio.run(ask(llm, [{"role": "user", "content": "?"}], read)), seen


def test_a_good_answer_is_asked_for_once() -> None:
    found, seen = asked("abc")
    assert found == Best("abc") and len(seen) == 1


@pytest.mark.req("EVAL-6")
def test_faults_are_named_to_the_llm_together() -> None:
    found, seen = asked("a", "abc")
    assert found == Best("abc") and len(seen) == 2
    assert [message["role"] for message in seen[1].messages] == ["user", "assistant", "user"]
    assert "- no b\n- no c" in seen[1].messages[-1]["content"]


def test_the_answer_with_the_fewest_faults_counts_and_of_equals_the_last() -> None:
    found, seen = asked("a", "ab", "xb")
    assert found == Best("ab", ("no c",)) and len(seen) == TRIES
    assert asked("a", "b", "c")[0].answer == "c"


def test_an_unreadable_answer_never_beats_a_readable_one() -> None:
    answers = iter(
        [
            Best("some", ("a", "b", "c")),
            Best("none", ("x",), is_unreadable=True),
            Best("none", ("x",), is_unreadable=True),
        ]
    )

    async def llm(request: Request) -> Response:
        return Response("?")

    assert asyncio.run(ask(llm, [], lambda text: next(answers))).answer == "some"


@pytest.mark.parametrize("text", ['{"a": 1}', '```json\n{"a": 1}\n```', ' \ufeff{"a": 1}\n'])
def test_one_object_is_found(text: str) -> None:
    assert object_of(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "[1]", "3", '{"a": 1} {"a": 2}', 'Here: {"a": 1}', '```\n{"a": 1}\n```!', "no JSON"]
)
def test_anything_else_is_unreadable(text: Any) -> None:
    with pytest.raises(Unreadable, match="one JSON object"):
        object_of(text)
