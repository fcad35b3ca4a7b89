"""Lets users' code, which runs on another loop or in a thread, call the llms of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from msgspec import structs

from evalloom.core.errors import CallError
from evalloom.core.model import Context, Llm, Record, Request, Response


class Bridge:
    """Runs calls of one run on the loop where the bridge was made; connections and limits of the llms belong to it.

    A call that users' code cancels is cancelled there, and `close` cancels what is still under way.
    """

    def __init__(self) -> None:
        self._home: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # no loop is running
            self._home = asyncio.get_running_loop()
        self._pending: set[Future[Response]] = set()
        self.is_closed = False

    def close(self) -> None:
        """End the run: no further call is made, and pending ones are cancelled."""
        self.is_closed = True
        for call in tuple(self._pending):
            call.cancel()

    async def ask(self, llm: Llm, request: Request) -> Response:
        """Return the answer of an llm. Raises CallError, also when the run has ended."""
        if self.is_closed:
            raise _run_ended()
        home = self._home
        if home is None or home is asyncio.get_running_loop() or not home.is_running():
            return await llm(request)
        call = asyncio.run_coroutine_threadsafe(_await(llm, request), home)
        self._pending.add(call)
        call.add_done_callback(self._pending.discard)
        if self.is_closed:
            # It may have been closed before this call was registered.
            call.cancel()
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if not self.is_closed or (here and here.cancelling()):
                raise
            raise _run_ended() from None

    def llm(self, llm: Llm) -> Llm:
        """Return an llm that users' code can call from anywhere."""
        return lambda request: self.ask(llm, request)

    def context(self, context: Context) -> Context:
        """Return a context whose llms users' code can call from anywhere."""
        apart = context.apart
        return structs.replace(
            context, llm=self.llm(context.llm), verify=self.llm(context.verify), apart=apart and self._apart(apart)
        )

    def _apart(self, apart: Callable[[list[Record]], Context]) -> Callable[[list[Record]], Context]:
        return lambda trace: self.context(apart(trace))


async def _await(llm: Callable[[Request], Awaitable[Any]], request: Request) -> Any:
    return await llm(request)


def _run_ended() -> CallError:
    return CallError("run_ended", "the run has ended, so no further request is sent")
