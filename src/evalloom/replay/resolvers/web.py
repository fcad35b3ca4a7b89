"""`http://host/path` and `https://…`: what an allowed host answers to one GET.

The host's name is looked up once, and the connection goes to the very address that was found harmless: a name that
leads elsewhere at the second look gains nothing.
"""

from __future__ import annotations

import io
import re
import typing
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote as escaped
from urllib.parse import urlsplit

from evalloom.core.errors import CallError
from evalloom.core.text import quote
from evalloom.replay.resolvers.call import Call
from evalloom.replay.resolvers.resolution import READ_BYTES

if typing.TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer

_HOST = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,252}|[0-9a-f:.]{2,45}")
_PORTS = {"http": 80, "https": 443}
_SAFE = "/?&=+%:;,@!$'()*~[]"
"""Signs that may stand in a path or a query as they are; every other one is escaped, line breaks above all."""
_NAT64 = IPv6Network("64:ff9b::/96")


_Address = tuple[typing.Any, typing.Any, int, str, tuple[typing.Any, ...]]
"""Family, kind, protocol, name and address, as getaddrinfo gives them."""


class _Endpoint(typing.NamedTuple):
    """Where a request goes."""

    host: str
    port: int
    path: str


def read_url(call: Call) -> str:
    """The beginning of the body that the host answers. The value, where there is one, is the query of the URL."""
    import http.client

    place = _parse_url(call)
    try:
        with _connect(_addresses(place, call), place, call) as sock:
            return _ask(sock, place, call)
    except TimeoutError:
        raise call.too_slow() from None
    except (OSError, http.client.HTTPException) as error:
        raise CallError("query_failed", f"the connection broke, or the answer is no HTTP: {_reason(error)}") from None


# -- where to -----------------------------------------------------------------------------------------


def _parse_url(call: Call) -> _Endpoint:
    """Host, port and path of the URL, if the settings allow it. Messages show no path, where a token may stand."""
    try:
        parts = urlsplit(f"{call.scheme}://{call.target}")
        host = (parts.hostname or "").rstrip(".").encode("idna").decode()
        port = _PORTS[call.scheme] if parts.port is None else parts.port
    except ValueError:
        raise _no_url(call) from None
    if "@" in parts.netloc:
        raise CallError("not_allowed", "a user or a password does not belong in a URL")
    if not _HOST.fullmatch(host) or not port:
        raise _no_url(call)
    shown = f"[{host}]" if ":" in host else host
    if not call.reach.http & {shown, f"{shown}:{port}"}:
        raise CallError("not_allowed", f"not allowed. Add {shown} to 'resolvers: http:' in evalloom.yaml")
    query = "&".join(part for part in (parts.query, call.value.strip()) if part)
    path = escaped(parts.path or "/", safe=_SAFE) + (f"?{escaped(query, safe=_SAFE)}" if query else "")
    return _Endpoint(host, port, path)


def _no_url(call: Call) -> CallError:
    return CallError("query_failed", f"expected a URL such as {call.scheme}://api.example.com/path")


def _addresses(place: _Endpoint, call: Call) -> list[_Address]:
    """All addresses of the host; none of them is private, unless the settings allow that."""
    found = _look_up(place, call)
    if not call.reach.private_addresses and not all(is_public(ip_address(address[4][0])) for address in found):
        advice = "'resolvers: private_addresses: true' in evalloom.yaml allows it"
        raise CallError("not_allowed", f"{place.host} has an address of this machine or of a private network. {advice}")
    return found


def _look_up(place: _Endpoint, call: Call) -> list[_Address]:
    """Asks for the addresses in a thread of its own, which may be left alone: asking takes as long as it takes."""
    import socket
    from queue import Empty, SimpleQueue
    from threading import Thread

    answers: SimpleQueue[list[_Address] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM))
        # The name of a host is too long for the system, or not known to it.
        except (OSError, ValueError) as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=call.time_left())
    except Empty:
        raise call.too_slow() from None
    if isinstance(answer, Exception):
        raise CallError("connect_failed", f"no address of {place.host} is known: {_reason(answer)}")
    return answer


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the open internet; where it stands for one of IPv4, that one decides."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        # Tunnels of old, which lead wherever the rest of the address says, and what private networks were called then.
        if address.sixtofour or address.teredo or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


# -- the request --------------------------------------------------------------------------------------


class _Reader(io.RawIOBase):
    """Reads from a socket until the deadline, however slowly the other side drips."""

    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock = sock
        self._call = call

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._call.time_left())
        return self._sock.recv_into(buffer)


class _SocketAdapter(typing.NamedTuple):
    """As much of a socket as http.client needs of one. It is closed by the one who opened it."""

    sock: socket.socket
    call: Call

    def sendall(self, content: bytes) -> None:
        self.sock.settimeout(self.call.time_left())
        self.sock.sendall(content)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self.sock, self.call))

    def close(self) -> None:
        pass


def _connect(addresses: list[_Address], place: _Endpoint, call: Call) -> socket.socket:
    """A connection to the first address that takes one."""
    import socket

    reason = ""
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        # An address that says nothing leaves time for those behind it.
        patience = call.time_left() / (len(addresses) - number)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(patience)
            sock.connect(address)
            return _wrap_tls(sock, place.host) if call.scheme == "https" else sock
        except OSError as error:
            sock.close()
            reason = _reason(error)
    call.time_left()
    raise CallError("connect_failed", f"{place.host} at port {place.port} cannot be reached: {reason}")


def _wrap_tls(sock: socket.socket, host: str) -> socket.socket:
    import ssl

    return ssl.create_default_context().wrap_socket(sock, server_hostname=host)


def _ask(sock: socket.socket, place: _Endpoint, call: Call) -> str:
    """Sends the request and reads as much of the answer as a value may hold."""
    from http.client import HTTPConnection

    # The host goes into the Host header; http.client opens no connection of its own where it has one.
    connection = HTTPConnection(place.host, place.port)
    connection.sock = _SocketAdapter(sock, call)
    is_usual = place.port == _PORTS[call.scheme]
    host = f"[{place.host}]" if ":" in place.host else place.host
    headers = {"Host": host if is_usual else f"{host}:{place.port}", "User-Agent": "evalloom", "Connection": "close"}
    connection.request("GET", place.path, headers=headers)
    with connection.getresponse() as reply:
        _check(reply)
        body = reply.read(READ_BYTES)
        if reply.length and len(body) < READ_BYTES:
            raise CallError("query_failed", "the answer broke off before its end")
        return _decoded(body, reply.headers.get_content_charset("utf-8"))


def _check(reply: HTTPResponse) -> None:
    """Refuses an answer that is not the text itself."""
    if 300 <= reply.status < 400:
        there = quote(reply.headers.get("Location", "").partition("?")[0], 200)
        raise CallError("query_failed", f"it redirects to {there}, and redirects are not followed. Name the final URL")
    if reply.status >= 400:
        raise CallError("query_failed", f"it answered {reply.status} {reply.reason}".rstrip())
    if (encoding := reply.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise CallError("query_failed", f"it answered in the encoding {quote(encoding)}, which was not asked for")


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, errors="replace")
    except (LookupError, ValueError):
        return body.decode(errors="replace")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
