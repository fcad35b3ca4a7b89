"""`file://path`, `chat://session` and `env://NAME`: files of the data folder, and allowed environment variables."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import quote
from evalloom.replay.resolvers.base import READ_BYTES, ResolverCall, find, to_text

_MOST_CHAT_BYTES = 16_000_000
_SESSION = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_COUNT = lazy_pattern(r"[1-9][0-9]{0,8}")


class _ChatMessage(Struct, frozen=True):
    """One line of a chat; other fields are ignored."""

    role: str
    content: Any = None


def read_file(call: ResolverCall) -> str:
    """Read the beginning of a file, enough for a value. With an empty target, the value is the file's name."""
    name = call.target or call.value
    if not name.strip():
        raise CallError("not_found", "which file? Write file://notes.txt")
    return _read_bytes(name, call, READ_BYTES).decode(errors="replace")


def read_chat(call: ResolverCall) -> str:
    """Read `chats/<session>.jsonl` as lines `role: content`. A number as value selects that many last messages."""
    if not _SESSION.fullmatch(call.target):
        raise CallError("not_found", "expected a session of at most 64 letters, digits, - and _, such as chat://today")
    wanted = call.value.strip()
    if wanted and not _COUNT.fullmatch(wanted):
        raise CallError("query_failed", f"expected the number of messages to read, got {quote(wanted)}")
    name = f"chats/{call.target}.jsonl"
    content = _read_bytes(name, call, _MOST_CHAT_BYTES + 1)
    if len(content) > _MOST_CHAT_BYTES:
        raise CallError("query_failed", f"{name} has more than {_MOST_CHAT_BYTES:,} bytes. Keep its last messages only")
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    chosen = lines[-int(wanted) :] if wanted else lines
    return "\n".join(_format_message(line, f"{name}:{number}") for number, line in chosen)


def _read_bytes(name: str, call: ResolverCall, most: int) -> bytes:
    path = find(call.reach, name)
    try:
        # The file may have been replaced since `find`: do not wait for a pipe, and do not follow a link.
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
    return f"{chat_message.role}: {to_text(chat_message.content)}"


def read_variable(call: ResolverCall) -> str:
    """Read an environment variable. With an empty target, the value is its name."""
    name = call.target or call.value.strip()
    if not name:
        raise CallError("not_found", "which variable? Write env://NAME")
    if name not in call.reach.env:
        shown = name if name.isidentifier() and len(name) <= 60 else quote(name)
        raise CallError("not_allowed", f"not allowed. Add {shown} to 'resolvers: env:' in evalloom.yaml")
    if name not in call.reach.environ:
        raise CallError("not_found", f"the environment variable {name} is not set. Set it, or write it into .env")
    value = call.reach.environ[name]
    if call.reach.hide(value) != value:
        raise CallError("not_allowed", f"{name} contains a key, and a context never contains keys, even allowed ones")
    return value
