"""An llm that does not answer ends a batch: at once after the first calls, and after a while in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError, LlmUnavailable
from evalloom.core.http import sleeping
from evalloom.core.model import Request, Response
from evalloom.llms.outage import IN_A_ROW, PAUSES_S, Guarded

REFUSED = CallError("http_401", "HTTP 401: wrong key (http://h/v1/chat)")
DOWN = CallError("http_503", "HTTP 503: down", is_transient=True)
BAD = CallError("http_400", "HTTP 400: too long")


class Llm:
    """Fails or answers as `behave` says for the number of the call and its prompt; counts calls."""

    def __init__(self, behave: Callable[[int, str], CallError | None]) -> None:
        self.calls = 0
        self._behave = behave

    async def __call__(self, request: Request) -> Response:
        self.calls += 1
        number = self.calls
        for _ in range(number % 3):
            await asyncio.sleep(0)
        error = self._behave(number, request.messages[0]["content"])
        if error is not None:
            raise CallError(error.code, error.message, error.is_transient)
        return Response("fine")


def ask(text: str = "x", **params: Any) -> Request:
    return Request([{"role": "user", "content": text}], params)


def called(llm: Llm, requests: list[Request], concurrency: int = 4, **options: Any) -> tuple[list[Any], list[float]]:
    """The outcome of each request, of which so many are in flight, and the pauses, in which no time really passes."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(seconds / 1000)

    async def run() -> list[Any]:
        sleeping.set(sleep)
        guarded, slots = Guarded(llm, "far", "http://h/v1", concurrency, **options), asyncio.Semaphore(concurrency)

        async def one(request: Request) -> Any:
            async with slots:
                try:
                    return (await guarded(request)).text
                except (CallError, LlmUnavailable) as error:
                    return error

        return await asyncio.wait_for(asyncio.gather(*map(one, requests)), 20)

    return asyncio.run(run()), slept


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        CallError("http_403", "no"),
        CallError("http_404", "no"),
        CallError("cannot_connect", "refused", is_transient=True),
        CallError("http_400", "HTTP 400: Model Not Exist"),
        CallError("http_422", "The model `gpt-9` does not exist or you do not have access to it."),
        CallError("http_400", "Invalid model name passed in model=gpt-9"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_when_the_first_calls_are_refused_no_other_is_sent(error: CallError, concurrency: int) -> None:
    llm = Llm(lambda number, prompt: error)
    outcomes, slept = called(llm, [ask()] * 50, concurrency)
    assert llm.calls <= concurrency and not slept
    assert all(isinstance(outcome, LlmUnavailable) for outcome in outcomes)
    assert error.message in str(outcomes[0]) and "http://h/v1" in str(outcomes[0])


@pytest.mark.parametrize("answer", [None, BAD, CallError("bad_answer", "HTML")])
def test_one_answer_shows_that_the_others_failed_for_themselves(answer: CallError | None) -> None:
    llm = Llm(lambda number, prompt: answer if prompt == "good" else REFUSED)
    outcomes, _ = called(llm, [ask("odd"), ask("good"), ask("odd"), ask("good"), ask("good")])
    assert [str(outcome) for outcome in outcomes] == [
        str(REFUSED) if prompt == "odd" else str(answer or "fine") for prompt in ("odd", "good", "odd", "good", "good")
    ]


def test_bad_requests_never_end_a_batch() -> None:
    llm = Llm(lambda number, prompt: BAD)
    outcomes, _ = called(llm, [ask()] * 50)
    assert llm.calls == 50 and {str(outcome) for outcome in outcomes} == {str(BAD)}


def test_an_outage_is_waited_out() -> None:
    llm = Llm(lambda number, prompt: DOWN if 20 < number <= 40 else None)
    outcomes, slept = called(llm, [ask(str(number)) for number in range(100)])
    failed = [outcome for outcome in outcomes if outcome != "fine"]
    assert IN_A_ROW - 1 <= len(failed) < IN_A_ROW + 4 and {str(error) for error in failed} == {str(DOWN)}
    assert set(map(int, slept)) <= set(map(int, PAUSES_S))


def test_an_outage_without_end_ends_the_batch() -> None:
    warnings: list[str] = []
    llm = Llm(lambda number, prompt: DOWN if number > 20 else None)
    outcomes, slept = called(llm, [ask()] * 100, warn=warnings.append)
    given_up = [outcome for outcome in outcomes if isinstance(outcome, LlmUnavailable)]
    assert 100 - 20 - IN_A_ROW - 4 <= len(given_up) < 100 - 20 - IN_A_ROW + 2
    assert "calls in a row failed, the last with: HTTP 503: down" in str(given_up[0])
    assert llm.calls <= 20 + IN_A_ROW + 4 + len(PAUSES_S) and int(max(slept)) == PAUSES_S[-1]
    assert len(warnings) == 1 and warnings[0].endswith("[llm_paused]")


def test_requests_that_fail_for_themselves_do_not_end_a_batch_while_others_are_answered() -> None:
    llm = Llm(lambda number, prompt: DOWN if prompt == "bad" else None)
    requests = [ask("good"), *[ask("bad")] * 30, *[ask("good")] * 30]
    outcomes, _ = called(llm, requests, concurrency=61)
    assert [str(outcome) for outcome in outcomes] == ["fine"] + [str(DOWN)] * 30 + ["fine"] * 30


def test_what_a_call_waited_in_an_outage_is_no_latency() -> None:
    async def run() -> float:
        guarded = Guarded(Llm(lambda number, prompt: DOWN if 1 < number < 12 else None), "far", pauses_s=(0.05, 0.05))
        await guarded(ask())
        await asyncio.gather(*(guarded(ask()) for _ in range(IN_A_ROW - 1)), return_exceptions=True)
        return (await guarded(ask())).usage.waited_s

    assert asyncio.run(run()) >= 0.05


def test_models_of_one_server_are_told_apart() -> None:
    async def run() -> None:
        guarded = Guarded(Llm(lambda number, prompt: REFUSED if prompt == "b" else None), "far")
        with pytest.raises(LlmUnavailable):
            await guarded(ask("b", model="b"))
        assert (await guarded(ask("a", model="a"))).text == "fine"

    asyncio.run(run())


@given(st.lists(st.sampled_from([None, REFUSED, DOWN, BAD]), max_size=60), st.integers(1, 8), st.booleans())
def test_whatever_happens_every_call_ends(errors: list[CallError | None], concurrency: int, is_down: bool) -> None:
    llm = Llm(lambda number, prompt: errors[number - 1] if number <= len(errors) else DOWN if is_down else None)
    outcomes, _ = called(llm, [ask()] * 40, concurrency, pauses_s=(0.1, 0.2))
    assert len(outcomes) == 40
    if errors and errors[0] is BAD and not is_down and REFUSED not in errors and DOWN not in errors:
        assert not any(isinstance(outcome, LlmUnavailable) for outcome in outcomes)
