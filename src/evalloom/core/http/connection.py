"""One connection to one server: a request goes out, its answer comes in, and then the next may go."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from typing import cast

import httptools

from evalloom.core.errors import CallError
from evalloom.core.http.reply import Reply

_LONGEST_HEAD = 256 * 1024
"""Longer headers are refused: the parser holds them in memory, and takes ever longer over each piece."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 over one socket, one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        self._loop = loop
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.is_open = False
        self._is_tunnelling = False
        self._clear()

    async def ask(self, request: bytes, timeout_s: float) -> Reply:
        """Sends a request and waits for the whole answer. Raises CallError."""
        assert self._transport is not None
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s, self._expire, timeout_s)
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            # The answer may still come, and would be taken for that of the next request.
            self.close()
            raise
        finally:
            self._timer.cancel()
            self._waiter = None

    async def tunnel(self, host: str, port: int, credentials: bytes, tls: ssl.SSLContext, timeout_s: float) -> None:
        """Asks a proxy for a way through to a server, and speaks TLS with that server from then on."""
        named = f"{host}:{port}".encode("latin-1")
        self._is_tunnelling = True
        reply = await self.ask(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (named, named, credentials), timeout_s)
        self._is_tunnelling = False
        if reply.status != 200 or self._transport is None:
            self.close()
            raise CallError("cannot_connect", f"the proxy lets nobody through to {host}:{port}: HTTP {reply.status}")
        self._parser = httptools.HttpResponseParser(self)
        self._transport = await self._loop.start_tls(self._transport, self, tls, server_hostname=host)

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            # Nobody asked for this: whoever is there does not speak HTTP as we do.
            self.close()
            return
        self._has_answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(CallError("bad_answer", "expected an answer in HTTP/1.1, got a change of protocol"))
        except httptools.HttpParserError as fault:
            message = f"expected an answer in HTTP, got {data[:60]!r}: {fault}"
            self._fail(CallError("bad_answer", message))
        if not self._has_head:
            self._head_size += len(data)
            if self._head_size > _LONGEST_HEAD:
                self._fail(CallError("bad_answer", f"expected headers of at most {_LONGEST_HEAD} bytes, got more"))

    def connection_lost(self, fault: Exception | None) -> None:
        self.is_open = False
        if self._waiter is None:
            return
        if self._ends_with_connection and fault is None:
            self.on_message_complete()
        else:
            when = "in the middle of the answer" if self._has_answered else "before an answer came"
            self._fail(CallError("connection_broke", f"the connection broke {when}", is_transient=True))

    # -- what the parser calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._waiter is None or self._waiter.done():
            # More than was asked for, in one piece with the answer: it would be taken for the next one.
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._has_head = True
        if self._is_tunnelling and self._parser.get_status_code() == 200 and self._waiter is not None:
            # Such an answer has no body and no end: what follows belongs to whoever is behind the proxy.
            self._clear()
            self._waiter.set_result(Reply(200, headers, b""))
            return
        length = headers.get("content-length", "")
        self._ends_with_connection = not length and "transfer-encoding" not in headers
        if length.isdecimal() and int(length) > self._max_bytes:
            self._refuse_size()

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            self._refuse_size()
        else:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._clear()  # 100 Continue, 103 Early Hints: the answer is still to come
            return
        if not self._parser.should_keep_alive():
            self.close()
        headers, parts = self._headers, self._parts
        self._clear()
        if self._waiter is not None and not self._waiter.done():
            try:
                body = _unpacked(b"".join(parts), headers.get("content-encoding", "").lower(), self._max_bytes)
            except CallError as fault:
                self._fail(fault)
                return
            self._waiter.set_result(Reply(status, headers, body))

    # ---------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._has_head = False
        self._head_size = 0
        self._ends_with_connection = False
        self._has_answered = False

    def _expire(self, timeout_s: float) -> None:
        self._fail(CallError("timeout", f"no answer within {timeout_s:g} s", is_transient=True))

    def _refuse_size(self) -> None:
        limit = self._max_bytes / 1024 / 1024
        self._fail(CallError("answer_too_large", f"expected an answer of at most {limit:g} MiB, got more"))

    def _fail(self, fault: CallError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(fault)
        self.close()


def _unpacked(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """A body as it was before it was packed; we ask for plain ones, and some servers pack all the same."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise CallError("bad_answer", f"expected a body that is not packed, got Content-Encoding {encoding!r}")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as fault:
        raise CallError("bad_answer", f"expected a body packed as {encoding}, got one that is not: {fault}") from None
    if not unpacker.eof and len(plain) <= max_bytes:
        raise CallError("bad_answer", f"expected a body packed as {encoding}, got one that was cut off")
    if len(plain) > max_bytes:
        raise CallError("answer_too_large", f"expected an answer of at most {max_bytes // 1048576} MiB, got more")
    return plain
