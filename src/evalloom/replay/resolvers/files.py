"""`file://path` and `chat://session`: texts in the data folder."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.text import quote
from evalloom.replay.resolvers.call import Call, find
from evalloom.replay.resolvers.resolution import READ_BYTES, text_of

_MOST_CHAT_BYTES = 16_000_000
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")


class _ChatMessage(Struct, frozen=True):
    """One line of a chat; what else stands there is for others."""

    role: str
    content: Any = None


def read_file(call: Call) -> str:
    """The beginning of a file, as much of it as a value may hold. The value is its name where the target is empty."""
    name = call.target or call.value
    if not name.strip():
        raise CallError("not_found", "which file? Write file://notes.txt")
    return _bytes_of(name, call, READ_BYTES).decode(errors="replace")


def read_chat(call: Call) -> str:
    """The messages of `chats/<session>.jsonl` as lines `role: content`: the last so many as the value says, or all."""
    if not _SESSION.fullmatch(call.target):
        raise CallError("not_found", "expected a session of at most 64 letters, digits, - and _, such as chat://today")
    wanted = call.value.strip()
    if wanted and not _COUNT.fullmatch(wanted):
        raise CallError("query_failed", f"expected how many of the last messages to take, got {quote(wanted)}")
    name = f"chats/{call.target}.jsonl"
    content = _bytes_of(name, call, _MOST_CHAT_BYTES + 1)
    if len(content) > _MOST_CHAT_BYTES:
        raise CallError("query_failed", f"{name} has more than {_MOST_CHAT_BYTES:,} bytes. Keep its last messages only")
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    chosen = lines[-int(wanted) :] if wanted else lines
    return "\n".join(_format_message(line, f"{name}:{number}") for number, line in chosen)


def _bytes_of(name: str, call: Call, most: int) -> bytes:
    path = find(call.reach, name)
    try:
        # Neither waits for a pipe nor follows a link, should one of them have taken the file's place by now.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            return file.read(most)
    except OSError as error:
        raise CallError("not_found", f"cannot be read: {error.strerror}") from None


def _format_message(line: bytes, where: str) -> str:
    try:
        chat_message = msgspec.json.decode(line, type=_ChatMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        expected = '{"role": "user", "content": "…"}'
        raise CallError(
            "query_failed", f"{where}: expected {expected}, got {quote(line.decode(errors='replace'))}"
        ) from None
    return f"{chat_message.role}: {text_of(chat_message.content)}"
