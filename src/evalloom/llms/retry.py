"""Repeats a request to an llm where that may help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter

from evalloom.core.errors import CallError
from evalloom.core.http import RETRIES, retry
from evalloom.core.model import Llm, Request, Response, with_usage


class Retry:
    """An llm whose requests are repeated after 429, 5xx, a broken connection or a time-out; never after another 4xx."""

    def __init__(self, llm: Llm, retries: int = RETRIES) -> None:
        self._llm = llm
        self._retries = retries
        self.on_retry: Callable[[Request, CallError], None] = lambda request, error: None
        """Is told of each error after which a request is repeated."""

    async def __call__(self, request: Request) -> Response:
        """Return the answer; its usage counts the retries."""
        start = last = perf_counter()

        def ask() -> Awaitable[Response]:
            nonlocal last
            last = perf_counter()
            return self._llm(request)

        response, retries = await retry(ask, self._retries, lambda error: self.on_retry(request, error))
        if not retries:
            return response
        return with_usage(response, retries=retries, waited_s=response.usage.waited_s + last - start)
