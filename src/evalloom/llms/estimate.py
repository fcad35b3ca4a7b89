"""Estimates the tokens of calls whose server sends no usage, so that budgets, limits and prices still work."""

from __future__ import annotations

import msgspec

from evalloom.core.model import Llm, Request, Response
from evalloom.llms.budget import estimate_tokens
from evalloom.llms.echo import message_text


class Counted:
    """An llm whose answers have tokens: those that the server counted, or else an estimate."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def __call__(self, request: Request) -> Response:
        """Return the answer; its usage says whether its tokens are estimated."""
        response = await self._llm(request)
        return response if response.usage.tokens else with_estimate(request, response)


def with_estimate(request: Request, response: Response) -> Response:
    """Return an answer with an estimate of its tokens and of those of its request, tools and schema included."""
    read = sum(
        estimate_tokens(message_text(message)) + _json(message.get("tool_calls")) for message in request.messages
    )
    read += _json(request.tools) + (0 if request.answer == "json" else _json(request.answer))
    # The vectors that answer a request for embeddings are not made of tokens.
    is_embedding = any(message.get("role") == "embed" for message in request.messages)
    written = 0 if is_embedding else estimate_tokens(response.text) + _json(response.tool_calls)
    # An empty request costs something too.
    usage = msgspec.structs.replace(
        response.usage, input_tokens=max(1, read), output_tokens=written, calls=response.usage.calls or 1, estimated=1
    )
    return msgspec.structs.replace(response, usage=usage)


def _json(value: object) -> int:
    if not value:
        return 0
    try:
        return estimate_tokens(msgspec.json.encode(value).decode())
    except (TypeError, ValueError):
        # What a function under test put into its messages.
        return estimate_tokens(repr(value))
