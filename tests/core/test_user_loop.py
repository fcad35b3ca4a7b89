"""All async code of users shares one loop, which is not the engine's; calls pass between the two."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from evalloom.core.bridge import Bridge
from evalloom.core.errors import CallError
from evalloom.core.model import Case, Context, Profile, Request, Response
from evalloom.core.threads import Threads
from evalloom.core.user_loop import run_on_user_loop, warnings_to
from evalloom.targets import TargetOptions, build_callable

pytestmark = pytest.mark.req("WORK-42")
LOCK = asyncio.Lock()
CLIENT: list[asyncio.Queue[int]] = []
WORD: ContextVar[str] = ContextVar("WORD", default="")

RUNS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def llm(request: Request) -> Response:
    return Response(f"{threading.current_thread().name}: {WORD.get()}")


def context(answer: Any = llm) -> Context:
    return Context(Case("1", {}), Profile("p"), answer, answer, [])


@RUNS
def test_module_level_locks_and_clients_work_in_every_run_and_batch(run: Callable[..., Any]) -> None:
    async def uses_both(number: int) -> int:
        if not CLIENT:
            CLIENT.append(asyncio.Queue())
        async with LOCK:
            await CLIENT[0].put(number)
            await asyncio.sleep(0.001)
            return await CLIENT[0].get()

    async def batch() -> list[int]:
        target = build_callable(uses_both)
        outputs = await asyncio.gather(*(target.call({"number": number}, context()) for number in range(20)))
        return [output.value for output in outputs]

    assert run(batch()) == run(batch()) == list(range(20))


def test_context_variables_pass_to_users_code_and_back_to_the_llm() -> None:
    async def answer(context: Context) -> list[str]:
        here = threading.current_thread().name
        return [here, WORD.get(), (await context.llm(Request([]))).text]

    async def main() -> list[str]:
        WORD.set("kept")
        output = await build_callable(answer).call({}, context())
        found: list[str] = output.value
        return found

    assert asyncio.run(main()) == ["evalloom-user-loop", "kept", "MainThread: kept"]


@pytest.mark.parametrize("is_sync", [True, False])
def test_request_of_a_run_that_is_over_time_is_cancelled(is_sync: bool) -> None:
    seen: list[str] = []

    async def never(request: Request) -> Response:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cancelled")
        raise AssertionError

    async def asks(context: Context) -> str:
        return (await context.llm(Request([]))).text

    def asks_too(context: Context) -> str:
        return asyncio.run(asks(context))

    async def main() -> None:
        target = build_callable(asks_too if is_sync else asks, options=TargetOptions(timeout_s=0.1))
        with pytest.raises(CallError, match=r"no answer within 0\.1 s"):
            await target.call({}, context(never))
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert seen == ["cancelled"]


def test_request_that_users_code_cancels_is_cancelled() -> None:
    seen: list[str] = []

    async def never(request: Request) -> Response:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cancelled")
        raise AssertionError

    async def impatient(context: Context) -> str:
        try:
            return (await asyncio.wait_for(context.llm(Request([])), 0.05)).text
        except TimeoutError:
            return "gave up"

    async def main() -> str:
        output = await build_callable(impatient).call({}, context(never))
        await asyncio.sleep(0.05)
        return str(output.value)

    assert (asyncio.run(main()), seen) == ("gave up", ["cancelled"])


def test_no_request_is_sent_after_the_run() -> None:
    async def main() -> None:
        bridge = Bridge()
        bridge.close()
        with pytest.raises(CallError, match="run_ended"):
            await bridge.context(context()).llm(Request([]))

    asyncio.run(main())


def test_time_in_which_others_block_does_not_count() -> None:
    async def blocks() -> str:
        time.sleep(0.6)
        return "blocked"

    async def waits() -> str:
        await asyncio.sleep(0.1)
        return "waited"

    async def main() -> list[Any]:
        calls = [run_on_user_loop(waits, "waits", 0.4), run_on_user_loop(blocks, "blocks", 5)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert asyncio.run(main()) == ["waited", "blocked"]


def test_code_within_its_time_limit_is_not_interrupted() -> None:
    async def blocks() -> str:
        time.sleep(1.3)
        return "done"

    async def main(said: list[str]) -> str:
        with warnings_to(said.append):
            return str(await run_on_user_loop(blocks, "blocks", 10))

    said: list[str] = []
    assert asyncio.run(main(said)) == "done"
    assert len(said) == 1 and "blocks() blocks its event loop" in said[0] and "[loop_blocking]" in said[0]


def test_cancelled_code_cleans_up() -> None:
    seen: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            seen.append("clean")

    async def main() -> None:
        with pytest.raises(CallError, match=r"no answer within 0\.1 s"):
            await run_on_user_loop(careful, "careful", 0.1)

    asyncio.run(main())
    assert seen == ["clean"]


def test_interrupted_thread_is_used_again() -> None:
    def spins() -> None:
        while True:
            pass

    async def main() -> int:
        threads = Threads()
        idents = set()
        for _ in range(3):
            with pytest.raises(CallError, match=r"spins\(\) still runs at test_user_loop\.py"):
                await threads.run(spins, "spins", 0.05)
            await asyncio.sleep(0.05)
            idents.add(await threads.run(threading.get_ident, "get_ident", 5))
        return len(idents)

    assert asyncio.run(main()) == 1
