"""Conversations in the usual form: a list of messages with roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalloom.core.model import Path, Remark, error, show_path, warning
from evalloom.core.text import describe

SPEAKERS = ("role", "type")
"""The field with the role of a message: `role` almost everywhere, `type` in LangChain."""
USERS = ("user", "human")


def findings(messages: list[Any], at: Path) -> Iterator[Remark]:
    """Yield the problems of a list of messages that is an input."""
    field = show_path(at)
    if not messages:
        yield error("empty_input", at, f"{field}: expected at least one message, got an empty list")
    for number, message in enumerate(messages):
        path = (*at, number)
        if not isinstance(message, dict) or not isinstance(speaker(message), str):
            expected = "expected a message with 'role' and 'content'"
            yield error("bad_message", path, f"{field}[{number}]: {expected}, got {describe(message)}")
            return
        if "content" not in message and not message.get("tool_calls"):
            yield error("bad_message", path, f"{field}[{number}].content: missing; a message needs it")
            return
    if messages and not any(speaker(message) in USERS for message in messages):
        roles = ", ".join(dict.fromkeys(repr(speaker(message)) for message in messages))
        yield warning("no_user_message", at, f"{field}: expected a message by the user, got only {roles}")


def speaker(message: dict[str, Any]) -> Any:
    return next((message[key] for key in SPEAKERS if key in message), None)


def until_last_user(messages: list[Any]) -> list[Any]:
    """Return the conversation up to the last user message: the messages after it are answers."""
    for number in range(len(messages), 0, -1):
        message = messages[number - 1]
        if isinstance(message, dict) and speaker(message) in USERS:
            return messages[:number]
    return []


def is_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and speaker(item) for item in value)


def input_findings(value: Any, field: str) -> Iterator[Remark]:
    """Yield the problems of an input that is a text or a list of messages."""
    if isinstance(value, list):
        yield from findings(value, (field,))
    elif not isinstance(value, str):
        yield error("bad_input", (field,), f"{field}: expected a string or a list of messages, got {describe(value)}")
    elif not value.strip():
        yield warning("empty_input", (field,), f"{field}: is empty")
