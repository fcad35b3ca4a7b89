"""One HTTP/1.1 connection: sends a request and reads its answer before the next request."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from time import monotonic
from typing import cast

import httptools

from evalloom.core.errors import CallError
from evalloom.core.http.reply import Reply

_LONGEST_HEAD = 256 * 1024
"""The limit for everything but the body: the parser keeps headers in memory, and gets slower with each piece."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 over one socket, one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        self._loop = loop
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self.is_open = False
        self._is_tunnelling = False
        self._head_size = 0
        self._clear()

    async def ask(self, request: bytes, timeout_s: float) -> Reply:
        """Send a request and wait for the complete answer. Raises CallError."""
        assert self._transport is not None
        if not self.is_open:
            raise CallError("connection_broke", "the connection broke before an answer came", is_transient=True)
        self._waiter = self._loop.create_future()
        self._head_size = 0
        self._deadline = monotonic() + timeout_s
        # One timer for many requests: to set and to cancel one takes as long as to parse an answer.
        if self._timer is None:
            self._timer = self._loop.call_later(timeout_s, self._check_time, timeout_s)
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            # A late answer would be read as the answer to the next request.
            self.close()
            raise
        finally:
            self._waiter = None

    async def tunnel(self, host: str, port: int, credentials: bytes, tls: ssl.SSLContext, timeout_s: float) -> None:
        """Open a tunnel through a proxy, and start TLS with the server behind it."""
        named = f"{host}:{port}".encode("latin-1")
        self._is_tunnelling = True
        reply = await self.ask(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (named, named, credentials), timeout_s)
        self._is_tunnelling = False
        if reply.status != 200:
            self.close()
            raise CallError("cannot_connect", f"the proxy refuses a connection to {host}:{port}: HTTP {reply.status}")
        if not self.is_open or self._transport is None:
            # What the proxy adds would be read as the beginning of what the server says over TLS.
            raise CallError("cannot_connect", f"expected a tunnel to {host}:{port}, got an answer of the proxy itself")
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._transport = await self._loop.start_tls(self._transport, self, tls, server_hostname=host)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.is_open = False
        self._end_timer()
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            # Data without a request: the server does not follow HTTP/1.1.
            self.close()
            return
        self._has_answered = True
        body_size = self._size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(CallError("bad_answer", "expected an answer in HTTP/1.1, got a change of protocol"))
        except httptools.HttpParserError as error:
            message = f"expected an answer in HTTP, got {data[:60]!r}: {error}"
            self._fail(CallError("bad_answer", message))
        if self._size == body_size and not self._waiter.done():
            # Headers, trailers, answers like 100 Continue: none of them may go on without end.
            self._head_size += len(data)
            if self._head_size > _LONGEST_HEAD:
                self._fail(CallError("bad_answer", f"expected headers of at most {_LONGEST_HEAD} bytes, got more"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._end_timer()
        if self._waiter is None:
            return
        if self._ends_with_connection and exc is None:
            self.on_message_complete()
        else:
            when = "in the middle of the answer" if self._has_answered else "before an answer came"
            self._fail(CallError("connection_broke", f"the connection broke {when}", is_transient=True))

    # -- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._waiter is None or self._waiter.done():
            # A second answer in the same data would be read as the answer to the next request.
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # a trailer of a chunked body, which must not change what the headers say
        field, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[field] = f"{self._headers[field]}, {text}" if field in self._headers else text

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._has_head = True
        if self._is_tunnelling and self._parser.get_status_code() == 200 and self._waiter is not None:
            # An answer to CONNECT has no body: the data after it comes from the server behind the proxy.
            self._clear()
            self._waiter.set_result(Reply(200, headers, b""))
            return
        length = headers.get("content-length", "")
        coding = headers.get("transfer-encoding", "identity").lower()
        self._ends_with_connection = not length and coding == "identity"
        if coding not in ("identity", "chunked"):
            self._fail(CallError("bad_answer", f"expected Transfer-Encoding chunked or none, got {coding!r}"))
        if length.isdecimal() and int(length) > self._max_bytes:
            self._refuse_size()

    def on_body(self, part: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # a body of an answer that has none, such as that to CONNECT
            return
        self._head_size = 0
        self._size += len(part)
        if self._size > self._max_bytes:
            self._refuse_size()
        else:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._waiter is None or self._waiter.done():
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._clear()  # 100 Continue, 103 Early Hints: the answer follows
            return
        # Some servers send a body after 204 and 304, which would be read as the answer to the next request.
        if not self._parser.should_keep_alive() or status in (204, 304):
            self.close()
        headers, parts = self._headers, self._parts
        self._clear()
        try:
            body = _decompress(b"".join(parts), headers.get("content-encoding", "").lower(), self._max_bytes)
        except CallError as error:
            if status < 400:
                self._fail(error)
                return
            body = b""  # the status of a refusal says more than that its body cannot be read
        self._waiter.set_result(Reply(status, headers, body))

    # ---------------------------------------------------------------------------------------------

    def _check_time(self, timeout_s: float) -> None:
        """Fail the request whose time is over; for a later one, look again when its time is."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        left = self._deadline - monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_time, timeout_s)
        else:
            self._fail(CallError("timeout", f"no answer within {timeout_s:g} s", is_transient=True))

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._has_head = False
        self._ends_with_connection = False
        self._has_answered = False

    def _refuse_size(self) -> None:
        limit = self._max_bytes / 1024 / 1024
        self._fail(CallError("answer_too_large", f"expected an answer of at most {limit:g} MiB, got more"))

    def _fail(self, error: CallError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.close()


def _decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress a body; we ask for plain bodies, but some servers compress them anyway."""
    if not body or encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise CallError("bad_answer", f"expected an uncompressed body, got Content-Encoding {encoding!r}")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise CallError("bad_answer", f"expected a body compressed with {encoding}: {error}") from None
    if len(plain) > max_bytes:
        raise CallError("answer_too_large", f"expected an answer of at most {max_bytes / 1048576:g} MiB, got more")
    if not unpacker.eof or unpacker.unused_data:
        which = "more after its end" if unpacker.eof else "one that is cut off"
        raise CallError("bad_answer", f"expected a body compressed with {encoding}, got {which}")
    return plain
