"""Limits the requests to an llm, at once and per minute, and adapts to 429."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Request, Response, with_usage

_RECOVERY = 0.1
"""How much one success adds to the limit of requests in flight, after a 429 has halved it."""
_BETWEEN_HALVINGS_S = 1.0
"""Requests in flight together are refused together, which halves the limit only once."""


class Limiter:
    """Limits requests in flight, which 429 halves and successes raise again, and requests and tokens per minute."""

    def __init__(
        self,
        concurrency: int,
        requests_per_minute: float = 0,
        tokens_per_minute: float = 0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.limit = float(concurrency)
        self.active = 0
        self._most = float(concurrency)
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._halved_at = -_BETWEEN_HALVINGS_S
        self._requests = _Bucket(requests_per_minute, clock)
        self._tokens = _Bucket(tokens_per_minute, clock)

    async def enter(self) -> float:
        """Wait for a free slot, and return how long that took."""
        start = 0.0
        if self.active < self.limit and not self._waiting:
            self.active += 1
        else:
            start = self._clock()
            await self._queue()
        waited = self._clock() - start if start else 0.0
        pause = max(self._requests.take(1), self._tokens.take(0))
        if pause > 0:
            try:
                await asyncio.sleep(pause)
            except BaseException:
                self.leave()
                raise
        return waited + pause

    def leave(self) -> None:
        """Pass the slot to the request that has waited longest."""
        self.active -= 1
        self._wake()

    def succeeded(self, tokens: int) -> None:
        if self.limit < self._most:
            self.limit = min(self._most, self.limit + _RECOVERY)
        self._tokens.take(tokens)

    def refused(self) -> None:
        """Halve the limit of requests in flight."""
        now = self._clock()
        if now - self._halved_at >= _BETWEEN_HALVINGS_S:
            self._halved_at = now
            self.limit = max(1.0, self.limit / 2)

    def resize(self, concurrency: int, requests_per_minute: float, tokens_per_minute: float) -> None:
        """Change the limits; requests in flight beyond the new one end first."""
        self.limit = float(concurrency) if self.limit == self._most else min(self.limit, float(concurrency))
        self._most = float(concurrency)
        self._requests.fill_at(requests_per_minute)
        self._tokens.fill_at(tokens_per_minute)
        self._wake()

    async def _queue(self) -> None:
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.leave()
            raise

    def _wake(self) -> None:
        while self._waiting and self.active < self.limit:
            slot = self._waiting.popleft()
            if not slot.done():
                self.active += 1
                slot.set_result(None)


class _Bucket:
    """A token bucket that fills in one second; a larger amount may be taken, and the next caller waits for it."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._rate = per_minute / 60
        self._clock = clock
        self._capacity = max(1.0, self._rate)
        self._level = self._capacity
        self._at = clock() if per_minute else 0.0

    def fill_at(self, per_minute: float) -> None:
        """Change the rate; what is in it, or owed, stays."""
        self.take(0)
        self._rate = per_minute / 60
        self._capacity = max(1.0, self._rate)

    def take(self, amount: float) -> float:
        """Take an amount, and return how long to wait for it."""
        if not self._rate:
            return 0.0
        now = self._clock()
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)


class Limited:
    """An llm within the limits of a limiter."""

    def __init__(self, llm: Llm, limiter: Limiter) -> None:
        self._llm = llm
        self._limiter = limiter

    async def __call__(self, request: Request) -> Response:
        """Return the answer; the request waits for a slot first."""
        limiter = self._limiter
        waited = await limiter.enter()
        try:
            response = await self._llm(request)
        except CallError as error:
            if error.code == "http_429":
                limiter.refused()
            raise
        finally:
            limiter.leave()
        limiter.succeeded(response.usage.tokens)
        return response if not waited else with_usage(response, waited_s=waited)
