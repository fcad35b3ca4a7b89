"""Asking again when that may help, and never when it cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalloom.core.errors import BudgetSpent, CallError
from evalloom.core.http import Client, sleeping
from evalloom.core.model import Request, Response, Usage
from evalloom.llms.openai import OpenAi
from evalloom.llms.retry import Retry


def ask(url: str, prompt: str, retries: int = 5, timeout_s: float = 10) -> tuple[Response | CallError, list[float]]:
    """What came of a question, and how long was slept between the attempts."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> Response | CallError:
        sleeping.set(sleep)
        client = Client(timeout_s)
        try:
            return await Retry(OpenAi(client, url, "m"), retries)(Request([{"role": "user", "content": prompt}]))
        except CallError as fault:
            return fault
        finally:
            await client.close()

    return asyncio.run(run()), slept


@pytest.mark.parametrize("mode", ["flaky-3", "limited-3"])
def test_what_heals_is_answered_and_its_attempts_are_counted(llm_server: Any, mode: str) -> None:
    response, slept = ask(llm_server.url, f"[[{mode}]] retry me")
    assert isinstance(response, Response)
    assert (response.usage.retries, response.usage.calls, len(slept)) == (3, 1, 3)


def test_an_answer_at_once_counts_no_retry(llm_server: Any) -> None:
    response, slept = ask(llm_server.url, "at once")
    assert isinstance(response, Response) and (response.usage.retries, slept) == (0, [])


@pytest.mark.parametrize("mode", ["status-429", "status-500", "status-503", "status-408", "drop", "cut"])
def test_what_does_not_heal_is_given_up_after_so_many_attempts(llm_server: Any, mode: str) -> None:
    prompt = f"[[{mode}]] never heals"
    fault, slept = ask(llm_server.url, prompt, retries=2)
    assert isinstance(fault, CallError) and fault.message.endswith("gave up after 3 attempts")
    assert (len(slept), llm_server.log()[prompt]) == (2, 3)


def test_a_time_out_is_tried_again(llm_server: Any) -> None:
    fault, slept = ask(llm_server.url, "[[hang]] retry", retries=1, timeout_s=0.05)
    assert isinstance(fault, CallError) and (fault.code, len(slept)) == ("timeout", 1)


@pytest.mark.parametrize("mode", ["status-400", "status-401", "status-403", "status-404", "status-422", "html"])
def test_what_cannot_heal_is_asked_once(llm_server: Any, mode: str) -> None:
    prompt = f"[[{mode}]] once only"
    fault, slept = ask(llm_server.url, prompt)
    assert isinstance(fault, CallError) and "given up" not in fault.message
    assert (slept, llm_server.log()[prompt]) == ([], 1)


@pytest.mark.parametrize("fault", [BudgetSpent("spent"), ZeroDivisionError()])
def test_other_faults_are_not_ours_to_repeat(fault: Exception) -> None:
    asked = 0

    async def llm(request: Request) -> Response:
        nonlocal asked
        asked += 1
        raise fault

    async def run() -> Response:
        return await Retry(llm)(Request([]))

    with pytest.raises(type(fault)):
        asyncio.run(run())
    assert asked == 1


def test_the_rest_of_the_usage_is_kept() -> None:
    faults = [CallError("http_500", "no", is_transient=True, retry_after=0.0)]

    async def llm(request: Request) -> Response:
        if faults:
            raise faults.pop()
        return Response("a", usage=Usage(1, 2, 0.5, calls=1))

    async def run() -> Response:
        async def sleep(seconds: float) -> None:
            await asyncio.sleep(0.01)

        sleeping.set(sleep)
        return await Retry(llm)(Request([]))

    usage = asyncio.run(run()).usage
    assert (usage.tokens, usage.cost, usage.calls, usage.retries) == (3, 0.5, 1, 1)
    assert usage.waited_s >= 0.01  # so that a latency is that of the answer, not that of our patience
