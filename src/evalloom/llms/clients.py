"""Creates the llms of a batch by their protocols, wrapped for retries, limits, budgets, caching and recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.core.model import Embedder, Llm, Request, Response
from evalloom.llms import outage
from evalloom.llms.budget import Budget, Metered
from evalloom.llms.estimate import Counted
from evalloom.llms.limit import Limited, Limiter
from evalloom.llms.retry import Retry
from evalloom.settings import LlmSettings, Price, Settings

if TYPE_CHECKING:
    from evalloom.core.http import Client
    from evalloom.llms.cache import Store
    from evalloom.llms.cassette import Recorder

FREE = Price(0.0, 0.0)
Connect = Callable[[], "Client"]
"""Returns the HTTP client of an llm; an llm without a server does not call it."""
Maker = Callable[[LlmSettings, Connect, str], Llm]


def _openai(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.openai import OpenAi

    key, headers = _credentials(llm, key)
    return OpenAi(connect(), llm.base_url, llm.model, key, headers, llm.stream)


def _responses(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.responses import Responses

    key, headers = _credentials(llm, key)
    return Responses(connect(), llm.base_url, llm.model, key, headers)


def _anthropic(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.anthropic import Anthropic

    key, headers = _credentials(llm, key)
    return Anthropic(connect(), llm.base_url, llm.model, key, headers)


def _embeddings(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.openai import OpenAiEmbeddings

    key, headers = _credentials(llm, key)
    return OpenAiEmbeddings(connect(), llm.base_url, llm.model, key, headers)


def _credentials(llm: LlmSettings, key: str) -> tuple[str, dict[str, str]]:
    """Return the key, and the headers; the key is one of them where the provider has a header for it."""
    if key and llm.vendor is not None and llm.vendor.key_header:
        return "", {llm.vendor.key_header: key, **llm.headers}
    return key, llm.headers


def _scripted(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.scripted import Scripted

    return Scripted(llm.folder / llm.file, llm.name)


def _echo(llm: LlmSettings, connect: Connect, key: str) -> Llm:
    from evalloom.llms.echo import Echo

    return Echo(llm.name)


LLMS: dict[str, Maker] = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "scripted": _scripted,
    "echo": _echo,
}
"""Creates an llm of each protocol. Its module is imported when a profile uses it."""
OFFLINE = ("scripted", "echo")
"""Protocols without a server: repeatable, so nothing is cached, and free unless they have a price for rehearsal."""


class LlmOptions(Struct, frozen=True):
    """Options for every llm of a batch."""

    concurrency: int = 16
    use_cache: bool = True
    record: str = ""
    replay: str = ""
    max_cost: float | None = None
    max_tokens: int | None = None
    home: Path = Path()
    ends_on_outage: bool = False
    """Whether an llm that does not answer ends the batch, with LlmUnavailable, instead of failing each call."""


class Share(Struct, frozen=True):
    """Which part of every limit a process has, when several processes run a batch together."""

    index: int = 0
    count: int = 1

    def of(self, whole: int) -> int:
        """Return the part of a number; the parts of all processes add up to it."""
        return whole // self.count + (self.index < whole % self.count)


WHOLE = Share()


class Llms:
    """The llms of one batch, each created on first use. One object serves one event loop."""

    def __init__(
        self,
        project: Settings,
        options: LlmOptions,
        warn: Callable[[str], None] = lambda message: None,
        redact: Callable[[str], str] = lambda text: text,
        budget: Budget | None = None,
        share: Share = WHOLE,
    ) -> None:
        self.budget = budget or Budget(options.max_cost, options.max_tokens)
        self._share = share
        self._settings = project
        self._options = options
        self._redact = redact
        self._warn = warn
        self._store: Store | None = None
        self._llms: dict[tuple[str, bool], Llm] = {}
        self._answering: dict[tuple[str, Maker], Llm] = {}
        self._limiters: dict[str, tuple[LlmSettings, Limiter]] = {}
        self._closing: list[Client | Recorder] = []
        self._guarded: dict[str, outage.Guarded] = {}

    def get(self, name: str, is_judge: bool = False) -> Llm:
        """Return the llm of a name.

        Answers of a judge are cached at any temperature (its default is 0), so that scoring again is free.
        """
        if (name, is_judge) not in self._llms:
            self._llms[name, is_judge] = self._make(settings.llm_of(self._settings, name), is_judge)
        return self._llms[name, is_judge]

    def embedder(self, name: str) -> Embedder:
        """Return the embeddings of an llm: limited, retried, counted and recorded as its answers are."""
        from evalloom.llms.openai import Embedding

        return Embedding(self._metered(settings.llm_of(self._settings, name), _embeddings))

    def in_outage(self) -> list[str]:
        """Return the names of llms that do not answer now."""
        return [name for name, guarded in self._guarded.items() if not guarded.is_answering]

    async def close(self) -> None:
        """Write the cache and close connections."""
        if self._store is not None:
            self._store.close()
        for resource in self._closing:
            await resource.close()

    def _make(self, llm: LlmSettings, is_judge: bool) -> Llm:
        is_offline = llm.protocol in OFFLINE
        client: Llm = self._metered(llm, LLMS[llm.protocol])
        # A recording must hold every answer, also those in the cache.
        is_cached = self._options.use_cache and not self._options.record and not self._options.replay
        if is_cached and not is_offline:
            from evalloom.llms.cache import PATH, Cache, Store

            self._store = self._store or Store(self._options.home / PATH, self._warn)
            identity = (llm.protocol, llm.base_url, llm.model)
            client = Cache(client, self._store, identity, is_judge, settings.key_of(llm))
        return WithParams(client, {"temperature": 0, **llm.params} if is_judge else llm.params)

    def _metered(self, llm: LlmSettings, maker: Maker) -> Llm:
        # The judge and the llm of the same name share a client.
        if (llm.name, maker) not in self._answering:
            self._answering[llm.name, maker] = self._answer(llm, maker)
        price = llm.price or self._settings.prices.get(llm.model)
        if llm.protocol in OFFLINE:
            return Metered(self._answering[llm.name, maker], self.budget, price or FREE)
        prices = {**self._settings.prices, **({llm.model: price} if price else {})}
        return Metered(self._answering[llm.name, maker], self.budget, price, prices)

    def _answer(self, llm: LlmSettings, maker: Maker) -> Llm:
        """Return the client or the player, with limits and retries."""
        if self._options.replay:
            from evalloom.llms.cassette import Player

            return Counted(Player(Path(self._options.replay), llm.name))
        key = settings.key_of(llm)

        def connect() -> Client:
            from evalloom.core.http import Client

            http_client = Client(llm.timeout_s, secret=key)
            self._closing.append(http_client)
            return http_client

        server = maker(llm, connect, key)
        if llm.protocol not in OFFLINE and maker is not _embeddings:
            from evalloom.llms.model_limits import FittedToModel

            server = FittedToModel(server, llm, self._warn)
        client: Llm = Retry(Limited(Counted(server), self._limiter(llm)), llm.retries)
        if self._options.ends_on_outage:
            from evalloom.core.http import display_url

            concurrency = self._share.of(llm.concurrency or self._options.concurrency)
            client = self._guarded[llm.name] = outage.Guarded(
                client, llm.name, display_url(llm.base_url), concurrency, self._warn, outage.PAUSES_S
            )
        if not self._options.record:
            return client
        from evalloom.llms.cassette import Recorder

        recorder = Recorder(client, Path(self._options.record), llm.name, self._redact)
        self._closing.append(recorder)
        return recorder

    def _limiter(self, llm: LlmSettings) -> Limiter:
        """Return the limiter of an llm, which its embeddings share."""
        if llm.name not in self._limiters:
            self._limiters[llm.name] = llm, Limiter(*self._limits(llm))
        return self._limiters[llm.name][1]

    def _limits(self, llm: LlmSettings) -> tuple[int, float, float]:
        """Return this process's share of the concurrency, the requests and the tokens per minute of an llm."""
        share = self._share
        concurrency = share.of(llm.concurrency or self._options.concurrency)
        return concurrency, llm.requests_per_minute / share.count, llm.tokens_per_minute / share.count

    def take_share(self, share: Share) -> None:
        """Change the share of every limit that is for this process."""
        self._share = share
        for llm, limiter in self._limiters.values():
            limiter.resize(*self._limits(llm))

    @property
    def is_within_limits(self) -> bool:
        """Whether no more requests are in flight than the limits now allow."""
        return all(limiter.active <= max(1.0, limiter.limit) for _, limiter in self._limiters.values())


class WithParams:
    """An llm with default parameters, which a request may override; None is not sent."""

    def __init__(self, llm: Llm, params: dict[str, object]) -> None:
        self._llm = llm
        self._params = params

    async def __call__(self, request: Request) -> Response:
        """Return the answer to the request with the default parameters added."""
        merged = {**self._params, **request.params, **request.pinned}
        params = {name: value for name, value in merged.items() if value is not None}
        return await self._llm(msgspec.structs.replace(request, params=params, pinned={}))
