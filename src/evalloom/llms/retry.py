"""Asks an llm again when trying again may help."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from evalloom import http
from evalloom.model import Llm, Request, Response


class Retry:
    """An llm that is asked again after 429, 5xx, a broken connection or a time-out; never after another 4xx."""

    def __init__(self, llm: Llm, retries: int = http.RETRIES) -> None:
        self._llm = llm
        self._retries = retries

    async def __call__(self, request: Request) -> Response:
        """The answer; its usage says how often the question had to be repeated."""

        def ask() -> Awaitable[Response]:
            return self._llm(request)

        response, retries = await http.retry(ask, self._retries)
        if not retries:
            return response
        usage = msgspec.structs.replace(response.usage, retries=retries)
        return msgspec.structs.replace(response, usage=usage)
