"""Access control: checks Host, Origin and token before a request is routed.

Any process can reach the port, and a browser can on behalf of any page it shows. So on loopback the Host must be a
name of this machine (which prevents DNS rebinding), and cross-site requests are rejected.
"""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalloom.core.text import quote
from evalloom.replay.requests import RequestError
from evalloom.replay.server.http import error_response

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The loopback names of this machine."""
OPEN_PATHS = ("/healthz",)
"""Paths that need no token."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response."""
_CHECKED_HEADERS = frozenset({b"host", b"origin", b"authorization", b"sec-fetch-site"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that rejects unauthorized requests and adds security headers to every response."""

    def __init__(self, app: ASGIApp, token: str = "", hosts: frozenset[str] | None = LOOPBACK) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        error = self._rejection(scope)
        if error is None:
            await self._app(scope, receive, send_guarded)
            return
        headers = {"WWW-Authenticate": "Bearer"} if error.code == "unauthorized" else None
        await error_response(error, headers)(scope, receive, send_guarded)

    def _rejection(self, scope: Scope) -> RequestError | None:
        """Return the error for a request that is not allowed."""
        sent: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _CHECKED_HEADERS:
                # One that comes twice matches no rule: a comma is in no valid value.
                sent[name] = sent[name] + b", " + value if name in sent else value
        host = sent.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and host_name(host) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            return RequestError("unknown_host", f"Host: expected one of {known}, got {quote(host)}")
        if error := _cross_site_error(sent, host):
            return error
        scheme, _, token = sent.get(b"authorization", b"").partition(b" ")
        is_authorized = scheme.lower() == b"bearer" and compare_digest(token.strip(), self._token)
        if self._token and scope["path"] not in OPEN_PATHS and not is_authorized:
            return RequestError("unauthorized", "expected the token of this service in 'Authorization: Bearer …'")
        return None


def host_name(host: str) -> str:
    """Return a Host without its port; all of it if what follows is not a port."""
    name, colon, port = host.rpartition(":")
    is_port = colon and (port.isdecimal() or not port) and (":" not in name or name.endswith("]"))
    return name if is_port else host


def _cross_site_error(sent: dict[bytes, bytes], host: str) -> RequestError | None:
    """Return the error for a cross-site request."""
    if b"cross-site" in sent.get(b"sec-fetch-site", b""):
        return RequestError("foreign_origin", "a page of another site may not call this service")
    origin = sent.get(b"origin")
    # Either scheme: behind a proxy that terminates TLS, the origin is https while the request is http.
    if origin is None or origin.decode("latin-1").lower() in (f"http://{host}", f"https://{host}"):
        return None
    message = f"Origin: expected the address of this service, got {quote(origin.decode('latin-1'))}"
    return RequestError("foreign_origin", message)
