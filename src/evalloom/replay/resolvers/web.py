"""`http://host/path` and `https://…`: the response of an allowed host to one GET.

The host name is resolved once, and the connection goes to the address that was checked, so DNS rebinding (a name that
resolves to another address later) cannot bypass the check.
"""

from __future__ import annotations

import io
import typing
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote as percent_encode
from urllib.parse import urlsplit

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import quote
from evalloom.replay.resolvers.base import READ_BYTES, ResolverCall

if typing.TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer

_HOST = lazy_pattern(r"[a-z0-9_][a-z0-9_.-]{0,252}|[0-9a-f:.]{2,45}")
_PORTS = {"http": 80, "https": 443}
_SAFE = "/?&=+%:;,@!$'()*~[]"
"""Characters that stay unescaped in a path or a query; escaping the others keeps line breaks out of the request."""
_NAT64 = IPv6Network("64:ff9b::/96")
_Address = tuple[typing.Any, typing.Any, int, str, tuple[typing.Any, ...]]
"""Family, kind, protocol, name and address, as getaddrinfo returns them."""


class _Endpoint(typing.NamedTuple):
    """The host, the port and the path of a request."""

    host: str
    port: int
    path: str


def read_url(call: ResolverCall) -> str:
    """Get a URL and return the beginning of the body. The value, if any, is appended to the query of the URL."""
    import http.client

    endpoint = _parse_url(call)
    try:
        with _connect(_addresses(endpoint, call), endpoint, call) as sock:
            return _get(sock, endpoint, call)
    except TimeoutError:
        raise call.too_slow() from None
    except (OSError, http.client.HTTPException) as error:
        raise CallError(
            "query_failed", f"the connection broke, or the response is not HTTP: {_reason(error)}"
        ) from None


# -- the address --------------------------------------------------------------------------------------


def _parse_url(call: ResolverCall) -> _Endpoint:
    """Parse the URL, if the settings allow its host. Messages do not show the path, which may contain a token."""
    try:
        parts = urlsplit(f"{call.scheme}://{call.target}")
        host = (parts.hostname or "").rstrip(".").encode("idna").decode()
        port = _PORTS[call.scheme] if parts.port is None else parts.port
    except ValueError:
        raise _bad_url(call) from None
    if "@" in parts.netloc:
        raise CallError("not_allowed", "a user or a password does not belong in a URL")
    if not _HOST.fullmatch(host) or not port:
        raise _bad_url(call)
    display_host = f"[{host}]" if ":" in host else host
    if not call.reach.http & {display_host, f"{display_host}:{port}"}:
        raise CallError("not_allowed", f"not allowed. Add {display_host} to 'resolvers: http:' in evalloom.yaml")
    query = "&".join(part for part in (parts.query, call.value.strip()) if part)
    path = percent_encode(parts.path or "/", safe=_SAFE) + (f"?{percent_encode(query, safe=_SAFE)}" if query else "")
    return _Endpoint(host, port, path)


def _bad_url(call: ResolverCall) -> CallError:
    return CallError("query_failed", f"expected a URL such as {call.scheme}://api.example.com/path")


def _addresses(endpoint: _Endpoint, call: ResolverCall) -> list[_Address]:
    """Return all addresses of the host; raise if one is private, unless the settings allow that."""
    addresses = _resolve_host(endpoint, call)
    if not call.reach.private_addresses and not all(is_public(ip_address(address[4][0])) for address in addresses):
        advice = "'resolvers: private_addresses: true' in evalloom.yaml allows it"
        raise CallError(
            "not_allowed", f"{endpoint.host} has an address of this machine or of a private network. {advice}"
        )
    return addresses


def _resolve_host(endpoint: _Endpoint, call: ResolverCall) -> list[_Address]:
    """Resolve the host in a thread that is abandoned at the deadline, because getaddrinfo has no timeout."""
    import socket
    from queue import Empty, SimpleQueue
    from threading import Thread

    answers: SimpleQueue[list[_Address] | Exception] = SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM))
        # The host is unknown, or its name is too long.
        except (OSError, ValueError) as error:
            answers.put(error)

    Thread(target=resolve, daemon=True).start()
    try:
        answer = answers.get(timeout=call.time_left())
    except Empty:
        raise call.too_slow() from None
    if isinstance(answer, Exception):
        raise CallError("connect_failed", f"{endpoint.host} has no known address: {_reason(answer)}")
    return answer


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the public internet; an IPv4 address embedded in an IPv6 one is checked instead."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        # Deprecated tunnels, which reach whatever address they embed, and deprecated private networks.
        if address.sixtofour or address.teredo or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


# -- the request --------------------------------------------------------------------------------------


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until the deadline, however slowly the data arrives."""

    def __init__(self, sock: socket.socket, call: ResolverCall) -> None:
        self._sock = sock
        self._call = call

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._call.time_left())
        return self._sock.recv_into(buffer)


class _SocketAdapter(typing.NamedTuple):
    """The parts of a socket that http.client uses. `read_url` closes the socket itself."""

    sock: socket.socket
    call: ResolverCall

    def sendall(self, content: bytes) -> None:
        self.sock.settimeout(self.call.time_left())
        self.sock.sendall(content)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self.sock, self.call))

    def close(self) -> None:
        pass


def _connect(addresses: list[_Address], endpoint: _Endpoint, call: ResolverCall) -> socket.socket:
    """Connect to the first address that accepts."""
    import socket

    ssl_context = None
    if call.scheme == "https":
        import ssl

        ssl_context = ssl.create_default_context()
    reason = ""
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        # Split the time that is left, so that an address without response leaves some for the next.
        timeout = call.time_left() / (len(addresses) - number)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
            return ssl_context.wrap_socket(sock, server_hostname=endpoint.host) if ssl_context else sock
        except OSError as error:
            sock.close()
            reason = _reason(error)
    call.time_left()
    raise CallError("connect_failed", f"{endpoint.host} at port {endpoint.port} cannot be reached: {reason}")


def _get(sock: socket.socket, endpoint: _Endpoint, call: ResolverCall) -> str:
    """Send the request and read as much of the body as a value needs."""
    from http.client import HTTPConnection

    # http.client does not connect when it already has a socket.
    connection = HTTPConnection(endpoint.host, endpoint.port)
    connection.sock = _SocketAdapter(sock, call)
    is_default_port = endpoint.port == _PORTS[call.scheme]
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    headers = {
        "Host": host if is_default_port else f"{host}:{endpoint.port}",
        "User-Agent": "evalloom",
        "Connection": "close",
    }
    connection.request("GET", endpoint.path, headers=headers)
    with connection.getresponse() as response:
        _check_response(response)
        body = response.read(READ_BYTES)
        if response.length and len(body) < READ_BYTES:
            raise CallError("query_failed", "the response ended too early")
        try:
            return body.decode(response.headers.get_content_charset("utf-8"), errors="replace")
        # An unknown charset.
        except (LookupError, ValueError):
            return body.decode(errors="replace")


def _check_response(response: HTTPResponse) -> None:
    """Refuse redirects, errors and compressed bodies."""
    if 300 <= response.status < 400:
        location = quote(response.headers.get("Location", "").partition("?")[0], 200)
        raise CallError(
            "query_failed", f"it redirects to {location}, and redirects are not followed. Name the final URL"
        )
    if response.status >= 400:
        raise CallError("query_failed", f"it answered {response.status} {response.reason}".rstrip())
    if (encoding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise CallError("query_failed", f"it answered in the encoding {quote(encoding)}, which was not requested")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
