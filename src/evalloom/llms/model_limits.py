"""Leaves out the parameters that a model refuses: reasoning models take no temperature, and name their limit otherwise.

What is known is left out at once. The rest is learned: a model that refuses a parameter by name is asked again without.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import structs

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Record, Request, Response
from evalloom.core.text import quote
from evalloom.settings import LlmSettings

# Models of OpenAI that always reason; later ones (gpt-5.1, …) take a temperature where their effort is none.
_REASONING = re.compile(r"(?:.*/)?(?:o[134](?:-.+)?|gpt-5(?:-(?:mini|nano|pro|codex))?(?:-20\d\d.*)?)")
_NEW_LIMIT = re.compile(r"(?:.*/)?(?:o[134](?:-.+)?|gpt-[5-9].*)")
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "logit_bias")
_REFUSAL = "not supported|unsupported|deprecated|does not support|only be set"
_REFUSED = re.compile(
    r"[Uu]nsupported (?:parameter|value): '(\w+)'" rf"|\b({'|'.join(_SAMPLING)})\b[^.]*(?:{_REFUSAL})"
)
_KNOWS_DEVELOPER = ("openai", "azure", "github", "openrouter", "litellm", "helicone", "vercel")
"""Providers that accept messages of the role developer; others know system only."""


class FittedToModel:
    """An llm that gets only the parameters its model takes; says once what was left out."""

    def __init__(self, llm: Llm, settings: LlmSettings, warn: Callable[[str], None]) -> None:
        self._llm = llm
        self._name = settings.name
        self._model = settings.model
        self._warn = warn
        self._dropped: set[str] = set()
        self._is_chat = settings.protocol == "openai"
        self._thinks = settings.protocol == "anthropic"
        self._has_new_limit = self._is_chat and bool(_NEW_LIMIT.fullmatch(self._model))
        if settings.protocol != "anthropic" and _REASONING.fullmatch(self._model):
            self._dropped |= set(_SAMPLING)
        vendor = settings.vendor
        self._renames = dict(vendor.renames) if vendor is not None else {}
        self._renames_developer = self._is_chat and vendor is not None and vendor.name not in _KNOWS_DEVELOPER
        self._noted: set[str] = set()

    async def __call__(self, request: Request) -> Response:
        """Return the answer; a parameter that the model refuses by name is left out of this and later requests."""
        for _ in range(len(_SAMPLING) + 1):
            fitted = self._fit(request)
            try:
                return await self._llm(fitted)
            except CallError as error:
                if error.code not in ("http_400", "http_422") or not self._learn(error.message, fitted.params):
                    raise
        return await self._llm(self._fit(request))

    def _fit(self, request: Request) -> Request:
        params = request.params
        if self._renames_developer and any(message.get("role") == "developer" for message in request.messages):
            request = structs.replace(request, messages=[_as_system(message) for message in request.messages])
        dropped = self._dropped | (_thinking_limits(params) if self._thinks else set())
        if gone := dropped & params.keys():
            for name in sorted(gone - self._noted):
                self._noted.add(name)
                reason = f"the model {quote(self._model)} takes none"
                self._warn(f"llm {quote(self._name)}: {name} is not sent, because {reason} [param_dropped]")
            params = {name: value for name, value in params.items() if name not in gone}
        if self._has_new_limit and "max_tokens" in params:
            params = dict(params)
            limit = params.pop("max_tokens")
            params.setdefault("max_completion_tokens", limit)
        if self._renames and self._renames.keys() & params.keys():
            params = {self._renames.get(name, name): value for name, value in params.items()}
        return request if params is request.params else structs.replace(request, params=params)

    def _learn(self, message: str, sent: Record) -> bool:
        """Remember what the server refused; whether the request can be sent again without it."""
        match = _REFUSED.search(message)
        name = match and (match[1] or match[2])
        # By what was sent, not by what is known: requests in flight at the same time are all refused.
        if name == "max_tokens" and self._is_chat and "max_tokens" in sent:
            self._has_new_limit = True
            return True
        if name not in _SAMPLING or name not in sent:
            return False
        self._dropped.add(name)
        return True


def _thinking_limits(params: Record) -> set[str]:
    """Return what Anthropic refuses while a model thinks."""
    thinking: Any = params.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") == "disabled":
        return set()
    return {"top_k"} if params.get("temperature") in (None, 1) else {"top_k", "temperature"}


def _as_system(message: Record) -> Record:
    return {**message, "role": "system"} if message.get("role") == "developer" else message
