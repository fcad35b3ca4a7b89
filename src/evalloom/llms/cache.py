"""Answers that were given before: by the content of the request, in one SQLite file that processes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import msgspec

from evalloom.core.http import is_secret
from evalloom.core.model import Llm, Request, Response, Usage

if TYPE_CHECKING:
    from sqlite3 import Connection

PATH = Path(".evalloom") / "cache" / "llm.sqlite3"
_FORMAT = b"1"
"""Part of every key: answers that were stored in another format are not found rather than misread."""
_FLUSH_S = 0.1
_FLUSH_ENTRIES = 256
_BUSY_S = 2.0
"""How long a write waits for another process. Ours write for a millisecond; who holds it longer has it for himself."""
_HIT = Usage(calls=1, cached=1)
_DIGEST_BYTES = 16

_encode_request = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Response).decode


def digest(request: Request, identity: bytes = b"") -> bytes:
    """What stands for the content of a request, asked of whoever `identity` is."""
    try:
        content = _encode_request(request)
    except (TypeError, ValueError):
        # Half a surrogate pair, or what a function under test put into its messages.
        content = repr(request).encode("utf-8", "backslashreplace")
    return blake2b(content, digest_size=_DIGEST_BYTES, key=identity).digest()


class Cache:
    """An llm that is asked the same thing once.

    Only where the temperature is 0, unless `always`: what is drawn at random should be drawn each time. `identity` is
    what else the answer depends on: protocol, base URL, model. An answer from the cache took nothing, so its usage
    is one cached call without tokens. An answer that has `secret` in it is not kept.
    """

    def __init__(
        self, llm: Llm, store: Store, identity: tuple[str, ...], always: bool = False, secret: str = ""
    ) -> None:
        self._llm = llm
        self._store = store
        self._identity = blake2b(_FORMAT + _encode(identity), digest_size=_DIGEST_BYTES).digest()
        self._always = always
        self._secret = secret.encode() if is_secret(secret) else b""

    async def __call__(self, request: Request) -> Response:
        """The answer that was given before, or a new one, which is kept. A failed call is not kept."""
        if not self._always and request.params.get("temperature") != 0:
            return await self._llm(request)
        key = digest(request, self._identity)
        if (stored := self._store.get(key)) is not None and (found := _response(stored)) is not None:
            return found
        response = await self._llm(request)
        answer = _encode(response)
        if not self._secret or self._secret not in answer:
            self._store.put(key, answer)
        return response


def _response(stored: bytes) -> Response | None:
    try:
        return msgspec.structs.replace(_decode(stored), usage=_HIT)
    except msgspec.DecodeError:
        return None


class Store:
    """Answers by digest in an SQLite file. It never fails: a file that cannot be used is told once and then left alone.

    Writes gather for a tenth of a second, because a transaction costs as much as many rows; lookups see them. Opened
    at the first lookup. One store serves one event loop; several processes may share the file.
    """

    def __init__(self, path: Path = PATH, warn: Callable[[str], None] = lambda message: None) -> None:
        self._path = path
        self._warn = warn
        self._connection: Connection | None = None
        self._is_usable = True
        self._unwritten: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """What was put under a key, by this process or by another."""
        if (found := self._unwritten.get(key)) is not None:
            return found
        if (connection := self._open()) is None:
            return None
        try:
            row = connection.execute("SELECT answer FROM answers WHERE digest = ?", (key,)).fetchone()
        except _faults() as fault:
            self._give_up(fault)
            return None
        return row[0] if row and isinstance(row[0], bytes) else None

    def put(self, key: bytes, answer: bytes) -> None:
        """Keeps an answer; it is on disk a tenth of a second later."""
        if not self._is_usable:
            return
        if not self._unwritten:
            self._flush_later()
        self._unwritten[key] = answer
        if len(self._unwritten) >= _FLUSH_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Writes what has gathered."""
        if not self._unwritten or (connection := self._open()) is None:
            return
        now = int(time())
        rows = [(key, answer, now) for key, answer in self._unwritten.items()]
        try:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)
        except _faults() as fault:
            self._give_up(fault)
        self._unwritten.clear()

    def close(self) -> None:
        """Writes what has gathered and closes the file."""
        self.flush()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _flush_later(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop, flush and close write
        loop.call_later(_FLUSH_S, self.flush)

    def _open(self) -> Connection | None:
        if self._connection is None and self._is_usable:
            try:
                self._connection = _connect(self._path)
            except _faults() as fault:
                self._give_up(fault)
        return self._connection

    def _give_up(self, fault: Exception) -> None:
        """Tells once that there is no cache, and does without."""
        if self._is_usable:
            self._is_usable = False
            where = self._path.as_posix()
            what = f"the cache cannot be used: {fault}. Nothing is kept in this run; delete the file if it is broken"
            self._warn(f"{where}: {what} [cache_unusable]")
        self._unwritten.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _faults() -> tuple[type[Exception], ...]:
    import sqlite3

    return (sqlite3.Error, OSError)


def _connect(path: Path) -> Connection:
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        # In this mode readers never wait for writers, and the disk is waited for only once in many writes.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS answers (digest BLOB PRIMARY KEY, answer BLOB, created INTEGER)")
    except BaseException:
        connection.close()
        raise
    return connection
