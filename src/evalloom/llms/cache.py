"""Caches answers by the content of the request, in an SQLite file that processes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import msgspec

from evalloom.core.http import is_secret, waiting
from evalloom.core.model import Llm, Request, Response, Usage

if TYPE_CHECKING:
    from sqlite3 import Connection

PATH = Path(".evalloom") / "cache" / "llm.sqlite3"
_FORMAT = b"1"
"""Part of every key, so that answers stored in another format are not found instead of misread."""
_FLUSH_S = 0.1
_FLUSH_ENTRIES = 256
_BUSY_S = 2.0
"""How long a write waits for another process. A write of ours takes a millisecond."""
_RETRY_S = 0.01
_CHECKPOINT_PAGES = 10_000
"""How many pages of 4 KB are written before it waits for the disk. With the 1,000 of SQLite, a fast run waits often."""
_HIT = Usage(calls=1, cached=1)
_DIGEST_BYTES = 16

_encode_request = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Response).decode


def digest(request: Request, identity: bytes = b"") -> bytes:
    """Return the digest of a request to the llm that `identity` stands for."""
    try:
        content = _encode_request(request)
    except (TypeError, ValueError):
        # Half a surrogate pair, or what a function under test put into its messages.
        content = repr(request).encode("utf-8", "backslashreplace")
    return blake2b(content, digest_size=_DIGEST_BYTES, key=identity).digest()


class Cache:
    """An llm whose answers are cached.

    Answers are cached at temperature 0 only, unless `always`: random answers should be drawn each time. `identity` is
    what else an answer depends on: protocol, base URL, model. A cached answer costs nothing, so its usage is one cached
    call without tokens. An answer that contains `secret` is not stored.
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
        """Return the cached answer, or request one and store it. A failed call is not stored.

        A request that is in flight already is not sent again: its answer is shared. If it fails, for example because
        its run is cancelled, each of those who waited asks for itself.
        """
        if not self._always and request.params.get("temperature") != 0:
            return await self._llm(request)
        key = digest(request, self._identity)
        if (stored := self._store.get(key)) is not None and (response := _response(stored)) is not None:
            return response
        in_flight = self._store.in_flight
        if key not in in_flight:
            in_flight[key] = answered = asyncio.get_running_loop().create_future()
            try:
                response = await self._ask(request, key)
                answered.set_result(response)
                return response
            finally:
                del in_flight[key]
                if not answered.done():
                    answered.set_result(None)
        # Shielded: whoever is cancelled must not cancel it for the others.
        shared = await waiting.get()(asyncio.shield(in_flight[key]))
        return await self._ask(request, key) if shared is None else msgspec.structs.replace(shared, usage=_HIT)

    async def _ask(self, request: Request, key: bytes) -> Response:
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
    """Answers by digest in an SQLite file. It never fails: it warns once about an unusable file, and then ignores it.

    Writes are collected for a tenth of a second, because a transaction costs as much as many rows; lookups see them.
    The file is opened at the first lookup. One store serves one event loop; several processes may share the file.
    """

    def __init__(self, path: Path = PATH, warn: Callable[[str], None] = lambda message: None) -> None:
        self._path = path
        self._place = path.absolute()
        self._warn = warn
        self._connection: Connection | None = None
        self._is_usable = True
        self._unwritten: dict[bytes, bytes] = {}
        self.in_flight: dict[bytes, asyncio.Future[Response | None]] = {}
        """Requests that wait for their answer; None is for one that failed."""

    def get(self, key: bytes) -> bytes | None:
        """Return the answer that this or another process stored under a key."""
        if (unwritten := self._unwritten.get(key)) is not None:
            return unwritten
        if (connection := self._open()) is None:
            return None
        try:
            row = connection.execute("SELECT answer FROM answers WHERE digest = ?", (key,)).fetchone()
        except _store_errors() as error:
            self._give_up(error)
            return None
        return row[0] if row and isinstance(row[0], bytes) else None

    def put(self, key: bytes, answer: bytes) -> None:
        """Store an answer; it is on disk a tenth of a second later."""
        if not self._is_usable:
            return
        if not self._unwritten:
            self._flush_later()
        self._unwritten[key] = answer
        if len(self._unwritten) >= _FLUSH_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Write the collected answers."""
        if not self._unwritten or (connection := self._open()) is None:
            return
        now = int(time())
        rows = [(key, answer, now) for key, answer in self._unwritten.items()]
        try:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)
        except _store_errors() as error:
            self._give_up(error)
        self._unwritten.clear()

    def close(self) -> None:
        """Write the collected answers and close the file."""
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
                self._connection = _connect(self._place)
            except _store_errors() as error:
                self._give_up(error)
        return self._connection

    def _give_up(self, error: Exception) -> None:
        """Warn once that there is no cache, and continue without it."""
        if self._is_usable:
            self._is_usable = False
            where = self._path.as_posix()
            what = f"the cache cannot be used: {error}. Nothing is cached in this run; delete the file if it is damaged"
            self._warn(f"{where}: {what} [cache_unusable]")
        self._unwritten.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _store_errors() -> tuple[type[Exception], ...]:
    import sqlite3

    return (sqlite3.Error, OSError)


def _set_mode(connection: Connection) -> None:
    """Choose the mode of a file. While another process does so, SQLite refuses at once instead of waiting."""
    import sqlite3
    from time import monotonic, sleep

    end = monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or monotonic() > end:
                raise
            sleep(_RETRY_S)


def _connect(path: Path) -> Connection:
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        # In this mode readers never wait for writers, and the disk is waited for only once in many writes.
        _set_mode(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute("CREATE TABLE IF NOT EXISTS answers (digest BLOB PRIMARY KEY, answer BLOB, created INTEGER)")
    except BaseException:
        connection.close()
        raise
    return connection
