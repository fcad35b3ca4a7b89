"""One job through a target: whatever happens inside, a run comes out."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import Any

import pytest
from msgspec import structs

from evalloom.core.errors import BudgetSpent, CallError, EvalloomError
from evalloom.core.model import Case, Context, Origin, Output, Profile, Record, Request, Response, Run, Usage
from evalloom.engine.run import Job, ProfileClients, Runner

CASE = Case("c1", {"q": 1}, tags=("t",), raw={"id": "c1"}, origin=Origin("f.jsonl", 3))
JOB = Job("key", CASE, Profile("p", run="fast", verify="slow"), 2, 7, "replay")


async def answering(request: Request) -> Response:
    return Response("answer", usage=Usage(3, 2, 0.5, calls=1))


async def failing(request: Request) -> Response:
    raise CallError("http_500", "HTTP 500")


def run(target: Any, job: Job = JOB, llm: Any = answering) -> Run:
    async def work() -> Run:
        return await Runner(target, {"p": ProfileClients(llm, llm)})(job)

    return asyncio.run(work())


async def asking_twice(inputs: Record, context: Context) -> Output:
    messages: list[Record] = [{"role": "user", "content": "one"}]
    await context.llm(Request(messages))
    messages.append({"role": "user", "content": "two"})
    return Output((await context.verify(Request(messages))).text)


def test_a_run_carries_what_is_known_of_its_case() -> None:
    found = run(asking_twice)
    assert (found.key, found.case_id, found.profile, found.repeat, found.number) == ("key", "c1", "p", 2, 7)
    assert (found.tags, found.raw, found.origin, found.dialect) == (("t",), {"id": "c1"}, CASE.origin, "replay")
    assert (found.outcome, found.output.value, found.error) == ("OK", "answer", "")
    assert found.started_at.endswith("+00:00") and found.duration_s >= 0


def test_what_was_asked_and_answered_is_in_the_trace_as_it_was_then() -> None:
    found = run(asking_twice)
    assert [(entry["type"], entry["llm"]) for entry in found.trace] == [("llm", "fast"), ("llm", "slow")]
    assert [len(entry["request"].messages) for entry in found.trace] == [1, 2]
    assert found.trace[0]["response"].text == "answer" and found.trace[0]["duration_s"] >= 0
    assert found.usage == Usage(6, 4, 1.0, calls=2)


def test_a_run_is_freed_without_the_garbage_collector() -> None:
    class Inputs(dict[str, Any]):
        """Inputs that a weak reference may refer to."""

    async def nested(inputs: Record, context: Context) -> Output:
        assert context.apart is not None
        return await asking_twice(inputs, context.apart([]))

    inputs = Inputs(q=1)
    freed = weakref.ref(inputs)
    gc.disable()
    try:
        run(nested, structs.replace(JOB, case=structs.replace(CASE, inputs=inputs)))
        del inputs
        assert freed() is None
    finally:
        gc.enable()


def test_a_failed_question_is_an_error_of_the_run_and_stays_in_its_trace() -> None:
    found = run(asking_twice, llm=failing)
    assert (found.outcome, found.error, found.usage) == ("FAIL", "HTTP 500 [http_500]", Usage(calls=1))
    assert found.trace[0]["error"] == "HTTP 500 [http_500]" and "response" not in found.trace[0]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ValueError("no such thing"), "ValueError: no such thing [target_raised]"),
        (SystemExit(3), "SystemExit: 3 [target_raised]"),
        (asyncio.CancelledError("inside"), "CancelledError: inside [target_raised]"),
        (TimeoutError(), "TimeoutError:  [target_raised]"),
        (RecursionError("deep"), "RecursionError: deep [target_raised]"),
        (ExceptionGroup("many", [ValueError()]), "ExceptionGroup: many (1 sub-exception) [target_raised]"),
        (Unspeakable(), "Unspeakable [target_raised]"),
    ],
)
def test_whatever_a_target_raises_is_an_error_of_that_run(fault: BaseException, error: str) -> None:
    async def target(inputs: Record, context: Context) -> Output:
        raise fault

    found = run(target)
    assert (found.outcome, found.error, found.output.value) == ("FAIL", error, None)
    assert "in target" in found.trace[-1]["text"]


@pytest.mark.parametrize("value", [None, "text", {"value": 1}, random])
def test_a_target_that_gives_no_output_is_told_so(value: Any) -> None:
    async def target(inputs: Record, context: Context) -> Any:
        return value

    found = run(target)
    assert found.outcome == "FAIL"
    assert found.error.startswith("expected an Output from the target, got ") and found.error.endswith("[bad_output]")


def test_what_cannot_be_awaited_is_an_error_of_that_run() -> None:
    assert run(lambda inputs, context: 5).error.endswith("[target_raised]")


@pytest.mark.parametrize("fault", [BudgetSpent("spent"), EvalloomError("x", "broken"), KeyboardInterrupt()])
def test_what_concerns_the_whole_batch_is_raised(fault: BaseException) -> None:
    async def target(inputs: Record, context: Context) -> Output:
        raise fault

    with pytest.raises(type(fault)):
        run(target)


def test_a_run_that_is_given_up_is_no_run() -> None:
    async def target(inputs: Record, context: Context) -> Output:
        await asyncio.sleep(3600)
        return Output()

    async def work() -> None:
        task = asyncio.ensure_future(Runner(target, {"p": ProfileClients(answering, answering)})(JOB))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())


def test_a_case_with_a_fault_is_not_sent() -> None:
    async def target(inputs: Record, context: Context) -> Output:
        raise AssertionError("sent")

    found = run(target, Job("key", CASE, Profile("p"), 0, 1, error="id: missing [missing_field]"))
    assert (found.outcome, found.error, found.trace) == ("FAIL", "id: missing [missing_field]", [])


def test_the_outcome_is_what_the_target_says() -> None:
    async def target(inputs: Record, context: Context) -> Output:
        return Output("?", outcome="UNCERTAIN")

    assert run(target).outcome == "UNCERTAIN"


def test_the_profile_and_the_repeat_reach_every_question() -> None:
    asked: list[Request] = []

    async def listening(request: Request) -> Response:
        asked.append(request)
        return Response("x")

    async def target(inputs: Record, context: Context) -> Output:
        return Output((await context.llm(Request([], {"temperature": 0, "top_p": 1}))).text)

    profile = Profile("p", run="fast", verify="fast", params={"temperature": 0.9})
    run(target, Job("key", CASE, profile, 2, 1, ""), listening)
    assert (asked[0].params, asked[0].repeat) == ({"temperature": 0.9, "top_p": 1}, 2)
