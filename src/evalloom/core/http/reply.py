"""The answer of an HTTP server, and which keys must not be shown when they come back in one."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Reply(Struct, frozen=True):
    """The answer of a server: status, headers by their names in lower case, and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_secret(key: str) -> bool:
    """Return whether a key is a secret. Where none is needed people write `ollama`, which is a word of answers."""
    return len(key) >= 16 or (len(key) >= 8 and any(map(str.isdigit, key)))
