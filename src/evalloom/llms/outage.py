"""Ends a batch whose llm does not answer, instead of sending it every case.

Some errors are about the llm and not about one request: a wrong key, URL or model, a server that is down. If the first
calls all end with one, the llm cannot be used. If calls fail in a row later, it may come back: the others wait, and one
at a time asks again after growing pauses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from time import perf_counter

from evalloom.core.errors import CallError, LlmUnavailable
from evalloom.core.http import sleeping, waiting
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Llm, Request, Response, with_usage
from evalloom.llms.retry import Retry

IN_A_ROW = 10
"""So many failures without an answer in between are an outage. A wrong guess mostly costs a pause of a second."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0)
"""How long the llm is left alone before each further question."""
_AFTER_OTHERS_S = 0.1
"""A request that has failed lets a new one ask first: it may have failed because of what it says."""
_NO_WAIT_S = 0.001
_REFUSED = frozenset({"http_401", "http_402", "http_403", "http_404", "cannot_connect", "bad_url"})
_UNKNOWN_MODEL = lazy_pattern(
    r"\bmodel\b.{0,80}?\b(?:not exist|not found|not available|unknown)|\b(?:unknown|invalid|no such) model\b",
    re.I | re.S,
)

CODES = _REFUSED | {"timeout", "connection_broke", "http_408", "http_429", *(f"http_{n}" for n in range(500, 600))}
"""The errors that an outage may have caused: a resumed batch repeats the runs that ended with one."""


def is_refusal(error: CallError) -> bool:
    """Whether an error would meet every request: a wrong key, URL or model, or no server at all."""
    if error.code in ("http_400", "http_422"):
        return bool(_UNKNOWN_MODEL.search(error.message))
    return error.code in _REFUSED


class _Health:
    """What the calls to one model have shown so far."""

    def __init__(self) -> None:
        self.has_answered = False
        self.is_there = False
        """Whether the server has asked to come again, as with 429, or has answered."""
        self.in_flight = 0
        self.failures = 0
        """Calls in a row that failed because of the llm."""
        self.last_error = ""
        self.refusal: CallError | None = None
        """The first refusal, until the llm answers a call."""
        self.pauses = 0
        self.is_probing = False
        """Whether a call is in flight that shows whether an outage is over."""
        self.outage = ""
        self._changed: asyncio.Future[None] | None = None

    def answered(self) -> None:
        self.has_answered = self.is_there = True
        self.refusal = None
        self.failures = self.pauses = 0
        self.notify()

    def notify(self) -> None:
        """Wake those who wait for a change."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def wait(self) -> None:
        """Wait for a change, without the slot of the run: those who are waited for may sleep before a retry."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await waiting.get()(asyncio.shield(self._changed))


class Guarded:
    """An llm that is given up when it does not answer: then every call raises LlmUnavailable.

    Until its server is there, at most `concurrency` calls begin. Calls that are refused before one is answered, and all
    calls in an outage, wait until it is known whether it answers others.
    """

    def __init__(
        self,
        llm: Llm | Retry,
        name: str,
        url: str = "",
        concurrency: int = 16,
        warn: Callable[[str], None] = lambda message: None,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._llm = llm
        self._name = name
        self._url = url
        self._concurrency = concurrency
        self._warn = warn
        self._pauses_s = pauses_s
        self._models: dict[object, _Health] = {}
        if isinstance(llm, Retry):
            llm.on_retry = self._note_retry

    async def __call__(self, request: Request) -> Response:
        """Return the answer. A request that failed in an outage is sent once more when it is over."""
        health = self._health(request)
        is_probe = is_resent = False
        begun = sent = perf_counter()
        if not health.has_answered or health.failures or health.outage:
            is_probe, sent = await self._admit(health), perf_counter()
        while True:
            health.in_flight += 1
            try:
                response = await self._llm(request)
            except CallError as error:
                self._end(health, is_probe, error)
                if not _is_about_llm(error):
                    raise
                if not health.has_answered and is_refusal(error):
                    await self._await_first_calls(health)
                    raise
                is_over = health.failures < IN_A_ROW or (is_resent and not is_probe)
                if is_over and not health.outage:
                    raise
            except BaseException:
                self._end(health, is_probe)
                raise
            else:
                health.in_flight -= 1
                if health.failures or not health.has_answered:
                    health.is_probing = health.is_probing and not is_probe
                    health.answered()
                if sent - begun < _NO_WAIT_S:
                    return response
                return with_usage(response, waited_s=response.usage.waited_s + sent - begun)
            is_resent, is_probe, sent = True, await self._admit(health, has_failed=True), perf_counter()

    @property
    def is_answering(self) -> bool:
        """Whether no model is in an outage now."""
        return all(not health.outage and health.failures < IN_A_ROW for health in self._models.values())

    def _health(self, request: Request) -> _Health:
        model = request.params.get("model")
        health = self._models.get(model)
        if health is None:
            health = self._models[model] = _Health()
        return health

    def _note_retry(self, request: Request, error: CallError) -> None:
        health = self._health(request)
        if not health.is_there and error.code.startswith("http_"):
            health.is_there = True
            health.notify()

    def _end(self, health: _Health, is_probe: bool, error: CallError | None = None) -> None:
        """Note the end of a call that was not answered, or was cancelled."""
        health.in_flight -= 1
        health.is_probing = health.is_probing and not is_probe
        if error is not None and not _is_about_llm(error):
            # The server has read the request, so it is there.
            health.answered()
            return
        if error is not None:
            self._note_failure(health, error)
        if health.refusal is not None and not health.in_flight and not health.outage:
            calls = "the first call" if health.failures == 1 else f"all of the first {health.failures} calls"
            self._give_up(health, f"{calls} failed: {health.refusal.message}")
        health.notify()

    def _note_failure(self, health: _Health, error: CallError) -> None:
        health.failures += 1
        health.last_error = error.message
        if not health.has_answered and is_refusal(error):
            health.refusal = health.refusal or error
        if health.failures == IN_A_ROW and health.refusal is None:
            minutes = sum(self._pauses_s) / 60
            message = f"{IN_A_ROW} calls in a row failed, the last with: {error.message}"
            self._warn(f"llm {self._name!r}: {message}. Waiting for it, up to {minutes:.0f} minutes [llm_paused]")

    def _give_up(self, health: _Health, why: str) -> None:
        at = f" at {self._url}" if self._url and self._url not in why else ""
        health.outage = f"llm {self._name!r}{at} cannot be used: {why}"
        health.notify()

    async def _await_first_calls(self, health: _Health) -> None:
        """Wait until one of the first calls is answered; raise if none is."""
        while health.refusal is not None and not health.outage:
            await health.wait()
        if health.outage:
            raise LlmUnavailable(health.outage)

    async def _admit(self, health: _Health, has_failed: bool = False) -> bool:
        """Wait until a call may begin; return whether it is the one that shows whether an outage is over."""
        while not health.outage:
            if health.refusal or (not health.is_there and health.in_flight >= self._concurrency):
                await health.wait()
            elif health.failures < IN_A_ROW:
                return False
            elif health.is_probing:
                await health.wait()
            elif health.pauses == len(self._pauses_s):
                self._give_up(health, f"{health.failures} calls in a row failed, the last with: {health.last_error}")
            else:
                number = health.pauses
                await sleeping.get()(self._pauses_s[number] + (_AFTER_OTHERS_S if has_failed else 0))
                if health.failures >= IN_A_ROW and health.pauses == number and not health.is_probing:
                    health.pauses += 1
                    health.is_probing = True
                    return True
        raise LlmUnavailable(health.outage)


def _is_about_llm(error: CallError) -> bool:
    return error.is_transient or is_refusal(error)
