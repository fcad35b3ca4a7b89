"""Access control: checks Host, Origin, token and session before a request is routed.

Any process can reach the port, and a browser can on behalf of any page it shows. So on loopback the Host must be a
name of this machine (which prevents DNS rebinding), and cross-site requests are rejected.
"""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlencode

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.http import OPEN_PATHS, error_response
from evalloom.web.sessions import Sessions

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The loopback names of this machine."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response."""
_CHECKED_HEADERS = frozenset({b"host", b"origin", b"authorization", b"sec-fetch-site", b"cookie"})
_READING = ("GET", "HEAD")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware that rejects unauthorized requests and adds security headers to every response.

    It passes on whether the sender may write: as `scope["evalloom.may_write"]`.
    """

    def __init__(
        self, app: ASGIApp, token: str = "", hosts: frozenset[str] | None = LOOPBACK, sessions: Sessions | None = None
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = hosts
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(field for field in HEADERS if field[0] not in sent)]
            await send(message)

        error = self._rejection(scope)
        if error is None:
            await self._app(scope, receive, send_guarded)
            return
        if error.code == "unauthorized" and _wants_page(scope):
            here = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            await RedirectResponse(f"/login?{urlencode({'next': here})}", 303)(scope, receive, send_guarded)
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
        has_token = bool(self._token) and scheme.lower() == b"bearer" and compare_digest(token.strip(), self._token)
        has_session = self._sessions is not None and self._sessions.is_valid(sent.get(b"cookie", b"").decode("latin-1"))
        # A cookie also goes along with what pages of other ports of this host send; their Origin tells them apart.
        is_own_page = b"origin" in sent or sent.get(b"sec-fetch-site") == b"same-origin"
        scope["evalloom.may_write"] = has_token or (has_session and (scope["method"] in _READING or is_own_page))
        if self._token and not (has_token or has_session or is_open(scope["path"])):
            return RequestError("unauthorized", "expected the token of this service in 'Authorization: Bearer …'")
        return None


def is_open(path: str) -> bool:
    """Whether a path needs no token: it shows nothing of the data."""
    return path in OPEN_PATHS or path == "/login" or path.startswith("/static/")


def _wants_page(scope: Scope) -> bool:
    """Whether the sender is a browser that shows a page, which is sent to the login."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["method"] in _READING and b"text/html" in accepted and not scope["path"].startswith("/api/")


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
