"""What has not the form that was asked for is asked for again, with the fault named."""

import asyncio

import pytest

from evalloom.core.model import Request, Response
from evalloom.llms.retry_until_valid import TRIES, Best, ask


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
