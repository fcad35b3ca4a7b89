"""Sends requests over pooled connections: direct, or through the proxy that the environment names.

Built on asyncio and llhttp, because a general-purpose client takes more processor time than the rest of a run; see
docs/decisions/0004.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import structs

from evalloom.core.errors import CallError
from evalloom.core.http.connection import Connection
from evalloom.core.http.reply import Reply, is_secret
from evalloom.core.http.urls import at_url, display_url

MAX_BYTES = 16 * 1024 * 1024
"""The limit for one answer: no model writes more, and one answer must not exhaust the memory of a batch."""


class Endpoint(NamedTuple):
    """The key of the connection pool: requests to the same endpoint share connections."""

    host: str
    port: int
    is_secure: bool
    proxy: str = ""


class Client:
    """Sends requests and keeps connections for the next ones. One client serves one event loop."""

    def __init__(self, timeout_s: float = 120.0, max_bytes: int = MAX_BYTES, secret: str = "") -> None:
        """`secret` is a key to hide in error messages, because some servers repeat it there."""
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._secret = secret.encode() if is_secret(secret) else b""
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._proxies: dict[tuple[str, int], str] = {}
        self._tls: ssl.SSLContext | None = None

    async def send(self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Reply:
        """Send one request and return the complete answer; does not follow redirects. Raises CallError."""
        host, port, is_secure, head = _head(method, url, tuple(headers.items()))
        proxy = self._proxies.get((host, port))
        if proxy is None:
            # Looked up once for each host, because the lookup is slow.
            proxy = self._proxies[host, port] = find_proxy(url) or ""
        endpoint = Endpoint(host, port, is_secure, proxy)
        if endpoint.proxy and not is_secure:
            head = _through_proxy(head, url, endpoint.proxy)
        content = body or b""
        length = b"Content-Length: %d\r\n\r\n" % len(content) if body is not None else b"\r\n"
        try:
            reply = await self._ask(endpoint, head + length + content)
        except CallError as error:
            if error.code == "cannot_connect":
                raise  # it names the host already
            raise at_url(error, url) from None
        if reply.status >= 400 and self._secret and self._secret in reply.body:
            reply = structs.replace(reply, body=reply.body.replace(self._secret, b"[hidden]"))
        return reply

    async def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def _ask(self, endpoint: Endpoint, request: bytes) -> Reply:
        idle = self._idle.setdefault(endpoint, [])
        while idle and not idle[-1].is_open:
            idle.pop()
        connection = idle.pop() if idle else await self._connect(endpoint)
        reply = await connection.ask(request, self._timeout_s)
        if connection.is_open:
            idle.append(connection)
        return reply

    async def _connect(self, endpoint: Endpoint) -> Connection:
        loop = asyncio.get_running_loop()
        host, port, is_secure = _proxy_address(endpoint.proxy) if endpoint.proxy else endpoint[:3]
        where = f"the proxy {host}:{port}" if endpoint.proxy else f"{host}:{port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._max_bytes),
                    host,
                    port,
                    ssl=self._context() if is_secure else None,
                    server_hostname=host if is_secure else None,
                )
                if endpoint.proxy and endpoint.is_secure:
                    where = f"{endpoint.host}:{endpoint.port} through {where}"
                    # Through a proxy that is spoken to over TLS, this is TLS inside of TLS.
                    await connection.tunnel(
                        endpoint.host, endpoint.port, _credentials(endpoint.proxy), self._context(), self._timeout_s
                    )
                return connection
        except TimeoutError:
            message = f"no connection to {where} within {self._timeout_s:g} s"
            raise CallError("timeout", message, is_transient=True) from None
        except ssl.SSLError as error:
            message = f"no secure connection to {where}: {error.reason or error}. SSL_CERT_FILE names other CAs"
            raise CallError("cannot_connect", message) from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            reason = reason[:1].lower() + reason[1:]
            message = f"cannot connect to {where}: {reason}. Is the server running there?"
            raise CallError("cannot_connect", message, is_transient=True) from None

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()  # OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR
            for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
                if os.path.isfile(file := os.environ.get(name, "")):
                    self._tls.load_verify_locations(file)
        return self._tls


@lru_cache(maxsize=256)
def _head(method: str, url: str, headers: tuple[tuple[str, str], ...]) -> tuple[str, int, bool, bytes]:
    """Return host, port, whether it is TLS, and the head of the request without Content-Length."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna" if not (parts.hostname or "").isascii() else "ascii").decode()
    except ValueError:
        host, port, parts = "", 0, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise CallError("bad_url", f"expected a URL like http://host:port/path, got {url!r}")
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    named = parts.netloc.rpartition("@")[2].replace(parts.hostname or "", host)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {named}", "Accept: */*", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers]
    if parts.username and not any(name.lower() == "authorization" for name, _ in headers):
        lines.append(f"Authorization: {_basic(parts)}")
    if any(set(line) & {"\r", "\n", "\0"} for line in lines) or " " in target:
        raise CallError("bad_request", "expected a URL and headers without spaces and line breaks")
    try:
        return host, port, parts.scheme == "https", ("\r\n".join(lines) + "\r\n").encode("latin-1")
    except UnicodeEncodeError:
        raise CallError("bad_request", "expected a URL and headers in ASCII; escape other characters") from None


def _proxy_address(proxy: str) -> tuple[str, int, bool]:
    """Return host and port of a proxy, and whether it is spoken to over TLS."""
    try:
        parts = urlsplit(proxy)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = "expected a proxy like http://host:port or https://host:port in the environment"
        raise CallError("bad_url", f"{message}, got {display_url(proxy)!r}")
    return parts.hostname, port, parts.scheme == "https"


def _through_proxy(head: bytes, url: str, proxy: str) -> bytes:
    """Return the head for a proxy: with the complete URL and the credentials of the proxy."""
    method, _, rest = head.partition(b" ")
    _, _, rest = rest.partition(b" ")
    parts = urlsplit(url)
    full_url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    line, _, fields = rest.partition(b"\r\n")
    return b"%s %s %s\r\n%s%s" % (method, full_url.encode("latin-1"), line, _credentials(proxy), fields)


def _credentials(proxy: str) -> bytes:
    parts = urlsplit(proxy)
    if not parts.username:
        return b""
    return f"Proxy-Authorization: {_basic(parts)}\r\n".encode()


def _basic(parts: SplitResult) -> str:
    """Return the user name and password of a URL as a Basic credential."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def find_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; loopback addresses never use one."""
    if is_loopback(url):
        return None
    # Imported here: it imports http.client and email, and a local server needs no proxy.
    import urllib.request

    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    # curl also accepts `host:port` without a scheme.
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def is_loopback(url: str) -> bool:
    """Whether a URL points to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or ip_address(host).is_loopback
    except ValueError:
        return False
