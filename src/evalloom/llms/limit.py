"""How much an llm is asked at once and per minute: as much as it bears."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Request, Response, with_usage

_CREEP = 0.1
"""What one success adds to the number of requests in flight, after a 429 has halved it."""
_BETWEEN_HALVINGS_S = 1.0
"""Requests that were in flight together are refused together; that is one sign of too much, not many."""


class Limiter:
    """So many requests in flight, halved on 429 and creeping up again; so many requests and tokens a minute."""

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
        """Waits for a place, and says how long that took."""
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
        """Gives the place to who has waited longest."""
        self.active -= 1
        self._wake()

    def succeeded(self, tokens: int) -> None:
        if self.limit < self._most:
            self.limit = min(self._most, self.limit + _CREEP)
        self._tokens.take(tokens)

    def refused(self) -> None:
        """Half as many at once from now on."""
        now = self._clock()
        if now - self._halved_at >= _BETWEEN_HALVINGS_S:
            self._halved_at = now
            self.limit = max(1.0, self.limit / 2)

    async def _queue(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    def _wake(self) -> None:
        while self._waiting and self.active < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)


class _Bucket:
    """So much a minute; up to a second's worth may be taken at once, and more is paid back by waiting."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._rate = per_minute / 60
        self._clock = clock
        self._room = max(1.0, self._rate)
        self._level = self._room
        self._at = clock() if per_minute else 0.0

    def take(self, amount: float) -> float:
        """Takes an amount, and says how long to wait until it is there."""
        if not self._rate:
            return 0.0
        now = self._clock()
        self._level = min(self._room, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)


class Limited:
    """An llm that is asked no more than its limiter allows."""

    def __init__(self, llm: Llm, limiter: Limiter) -> None:
        self._llm = llm
        self._limiter = limiter

    async def __call__(self, request: Request) -> Response:
        """The answer, once there is a place for the question."""
        limiter = self._limiter
        waited = await limiter.enter()
        try:
            response = await self._llm(request)
        except CallError as fault:
            if fault.code == "http_429":
                limiter.refused()
            raise
        finally:
            limiter.leave()
        limiter.succeeded(response.usage.tokens)
        return response if not waited else with_usage(response, waited_s=waited)
