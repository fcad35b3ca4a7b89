"""How much is asked at once and per minute, on a clock that needs no waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from evalloom.core.errors import CallError
from evalloom.core.model import Request, Response, Usage
from evalloom.llms.limit import Limited, Limiter


class Skipping(selectors.DefaultSelector):
    """Where the event loop would wait, the time is over at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs async work on a loop whose clock jumps to whatever is next."""

    def loop() -> asyncio.AbstractEventLoop:
        selector = Skipping()
        made = asyncio.SelectorEventLoop(selector)
        made.time = lambda: selector.now  # type: ignore[method-assign]
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


def limiter(concurrency: int, **limits: float) -> Limiter:
    return Limiter(concurrency, clock=asyncio.get_running_loop().time, **limits)


class Server:
    """An llm that takes a second for an answer, and keeps count."""

    def __init__(self, faults: list[CallError] | None = None, tokens: int = 0) -> None:
        self.faults = faults or []
        self.tokens = tokens
        self.now = self.most = 0
        self.times: list[float] = []

    async def __call__(self, request: Request) -> Response:
        self.times.append(round(asyncio.get_running_loop().time(), 3))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(1)
            if self.faults:
                raise self.faults.pop(0)
            return Response("a", usage=Usage(self.tokens))
        finally:
            self.now -= 1


async def ask(llm: Limited, times: int) -> list[Any]:
    return await asyncio.gather(*(llm(Request([])) for _ in range(times)), return_exceptions=True)


def test_no_more_than_so_many_at_once() -> None:
    async def work() -> None:
        server, limit = Server(), limiter(3)
        await ask(Limited(server, limit), 10)
        assert (server.most, limit.active, server.times[-1]) == (3, 0, 3.0)

    run(work())


def test_places_are_given_in_the_order_of_coming() -> None:
    async def work() -> None:
        limit, order = limiter(1), []

        async def enter(number: int) -> None:
            await limit.enter()
            order.append(number)
            await asyncio.sleep(1)
            limit.leave()

        await asyncio.gather(*map(enter, range(6)))
        assert order == [0, 1, 2, 3, 4, 5]

    run(work())


def refused() -> CallError:
    return CallError("http_429", "too many", is_transient=True)


def test_a_refusal_halves_the_limit_and_success_lets_it_creep_up() -> None:
    async def work() -> None:
        limit = limiter(8)
        await ask(Limited(Server([refused()]), limit), 1)
        assert limit.limit == 4
        await ask(Limited(Server(), limit), 10)
        assert limit.limit == pytest.approx(5)
        await ask(Limited(Server(), limit), 100)
        assert limit.limit == 8

    run(work())


def test_refusals_that_come_together_halve_once_and_never_below_one() -> None:
    async def work() -> None:
        limit = limiter(8)
        await ask(Limited(Server([refused() for _ in range(8)]), limit), 8)
        assert limit.limit == 4
        for _ in range(5):
            await ask(Limited(Server([refused()]), limit), 1)
        assert limit.limit == 1
        assert [type(one) for one in await ask(Limited(Server(), limit), 3)] == [Response] * 3

    run(work())


def test_after_a_refusal_fewer_are_in_flight() -> None:
    async def work() -> None:
        server, limit = Server([refused()]), limiter(8)
        await ask(Limited(server, limit), 8)
        server.most = 0
        await ask(Limited(server, limit), 20)
        assert 4 <= server.most <= 6 and limit.active == 0

    run(work())


def test_other_faults_do_not_change_the_limit() -> None:
    async def work() -> None:
        limit = limiter(8)
        await ask(Limited(Server([CallError("http_500", "no", is_transient=True)]), limit), 1)
        assert (limit.limit, limit.active) == (8, 0)

    run(work())


@pytest.mark.parametrize("after", [0.0, 0.5, 1.0, 1.5])
def test_whoever_is_cancelled_while_waiting_leaves_no_gap(after: float) -> None:
    async def work() -> None:
        limit = limiter(2)
        llm = Limited(Server(), limit)
        asking = [asyncio.create_task(llm(Request([]))) for _ in range(8)]
        await asyncio.sleep(after)
        for task in asking[1:6]:
            task.cancel()
        done = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(one) for one in done[6:]] == [Response, Response]
        assert limit.active == 0
        assert len(await asyncio.wait_for(ask(llm, 4), 10)) == 4

    run(work())


def test_cancelled_in_the_moment_of_getting_a_place() -> None:
    async def work() -> None:
        limit = limiter(1)
        await limit.enter()
        waiting = asyncio.create_task(limit.enter())
        await asyncio.sleep(0)
        limit.leave()  # the place is given, and not yet taken
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert limit.active == 0

    run(work())


def test_so_many_requests_a_minute() -> None:
    async def work() -> None:
        server = Server()
        await ask(Limited(server, limiter(100, requests_per_minute=60)), 10)
        assert server.times == [float(second) for second in range(10)]

    run(work())


def test_a_second_of_requests_may_come_at_once() -> None:
    async def work() -> None:
        server = Server()
        await ask(Limited(server, limiter(100, requests_per_minute=600)), 30)
        assert server.times[:10] == [0.0] * 10
        assert server.times[-1] == pytest.approx(2.0)

    run(work())


def test_so_many_tokens_a_minute() -> None:
    async def work() -> None:
        server, limit = Server(tokens=120), limiter(1, tokens_per_minute=600)
        await ask(Limited(server, limit), 6)
        # 120 tokens at 10 a second: after the first answers each waits for what they took.
        assert [round(later - earlier) for earlier, later in zip(server.times[1:], server.times[2:], strict=False)] == [
            12
        ] * 4

    run(work())


def test_cancelled_while_waiting_for_the_minute() -> None:
    async def work() -> None:
        limit = limiter(5, requests_per_minute=1)
        await limit.enter()
        waiting = asyncio.create_task(limit.enter())
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert limit.active == 1

    run(work())
