"""An offline llm that repeats the prompt, for first steps and tests, and the texts of requests."""

from __future__ import annotations

from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.budget import estimate_tokens


class Echo:
    """Answers with the last user message."""

    def __init__(self, name: str = "echo") -> None:
        self._name = name

    async def __call__(self, request: Request) -> Response:
        """Return the last user message, or else the last message."""
        text = last_text(request, "user") or last_text(request)
        usage = Usage(estimate_tokens(prompt_text(request)), estimate_tokens(text), calls=1)
        return Response(text, usage=usage, model=self._name, stop="stop")


def prompt_text(request: Request) -> str:
    """Return the texts of all messages, one per line."""
    return "\n".join(map(message_text, request.messages))


def last_text(request: Request, role: str = "") -> str:
    """Return the text of the last message, or of the last one of a role; empty if there is none."""
    for message in reversed(request.messages):
        if not role or message.get("role") == role:
            return message_text(message)
    return ""


def message_text(message: Record) -> str:
    """Return the text of a message; of a message in parts, the texts among them."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
