"""An llm that says what it is told: offline, for first steps and for tests. Also what a request says, as text."""

from __future__ import annotations

from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.budget import estimate_tokens


class Echo:
    """Answers with the last user message."""

    def __init__(self, name: str = "echo") -> None:
        self._name = name

    async def __call__(self, request: Request) -> Response:
        """The last user message, or the last message at all where no user speaks."""
        text = last_text(request, "user") or last_text(request)
        usage = Usage(estimate_tokens(prompt_text(request)), estimate_tokens(text), calls=1)
        return Response(text, usage=usage, model=self._name, stop="stop")


def prompt_text(request: Request) -> str:
    """What all messages of a request say, one below the other."""
    return "\n".join(map(message_text, request.messages))


def last_text(request: Request, role: str = "") -> str:
    """What the last message says; with a role, the last message of that role. Empty where there is none."""
    for message in reversed(request.messages):
        if not role or message.get("role") == role:
            return message_text(message)
    return ""


def message_text(message: Record) -> str:
    """What a message says; of a message in parts, the parts that are text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
