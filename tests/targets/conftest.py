"""What a target needs to be called: a context whose llm says what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from evalloom.errors import CallError
from evalloom.model import Case, Context, Output, Profile, Record, Request, Response
from evalloom.targets import BuiltTarget

Call = Callable[..., Output]


async def echo(request: Request) -> Response:
    """An llm that answers with the request itself."""
    return Response(json.dumps({"messages": request.messages, "params": request.params}, ensure_ascii=False))


@pytest.fixture
def trace() -> list[Record]:
    return []


@pytest.fixture
def call(trace: list[Record]) -> Call:
    """`call(target, inputs)` gives the output; the trace is in the fixture of that name."""

    def now(
        target: BuiltTarget,
        inputs: Record,
        llm: Callable[[Request], Awaitable[Response]] = echo,
        params: Record | None = None,
    ) -> Output:
        context = Context(Case("1", inputs), Profile("p", params=params or {}), llm, llm, trace, repeat=2)

        async def once() -> Output:
            try:
                return await target.call(inputs, context)
            finally:
                await target.close()

        return asyncio.run(once())

    return now


@pytest.fixture
def fault_of(call: Call) -> Callable[..., CallError]:
    """`fault_of(target, inputs)` gives the CallError that the call ends in."""

    def now(target: BuiltTarget, inputs: Record) -> CallError:
        with pytest.raises(CallError) as caught:
            call(target, inputs)
        return caught.value

    return now
