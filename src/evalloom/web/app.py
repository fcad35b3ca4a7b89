"""The ASGI app: mounts the pages of the engine and of all systems, and turns exceptions into responses."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from traceback import format_exception
from typing import Any
from urllib.parse import parse_qs
from urllib.parse import quote as quote_path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from evalloom.core.errors import EvalloomError
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.http import JSON, error_response, json_response, parse_json, parse_media_type, read_body, status_of
from evalloom.pages.page import Mounted, Page, PageRequest, Redirect, Section, View
from evalloom.pages.site import Site
from evalloom.settings import secrets as settings_secrets
from evalloom.settings.keys import Redactor
from evalloom.ui.language import Language
from evalloom.web.guard import LOOPBACK, Guard
from evalloom.web.login import login_routes
from evalloom.web.render import Renderer, choose_language
from evalloom.web.sessions import Sessions
from evalloom.web.static import StaticFiles
from evalloom.web.views import ENGINE, stream_routes

_THREADS = 8
_FORM = "application/x-www-form-urlencoded"
_LEAST_COMPRESSED = 1_400
"""Bytes that fit into one packet anyway."""
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class App:
    """Serves a site over HTTP. `hosts` are the accepted Host names, None for any."""

    def __init__(self, site: Site, sessions: Sessions, hosts: frozenset[str] | None = LOOPBACK) -> None:
        self.site = site
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="evalloom-page")
        self._redactor = Redactor([*settings_secrets(site.settings), *([site.token] if site.token else [])])
        sections = (ENGINE, *site.catalog.pages)
        static = StaticFiles(sections)
        self._style = static.url("style.css")
        self._renderer = Renderer(site, sections, static)
        mounted = [section.mount(site) for section in sections if section.mount is not None]
        self._mounted: list[Mounted] = mounted
        # Those of a system come first: its API is called far more often than a page is opened.
        routes = [route for part in mounted for route in part.routes]
        routes += [*static.routes, *login_routes(sessions, self), *stream_routes(self._renderer)]
        routes += self._page_routes(sections)
        router = Router(routes, redirect_slashes=False, default=self._unknown_path)
        self._guarded = Guard(router, site.token, hosts, sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guarded(scope, receive, send)

    def end_open_work(self) -> None:
        """Answer all requests that are still open: streams by a last event, others by an error."""
        self.site.open_work.end()

    def close(self) -> None:
        """Wait for running calls."""
        self._threads.shutdown()
        for part in self._mounted:
            part.close()

    async def run_in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    # -- pages ---------------------------------------------------------------------------------------

    def _page_routes(self, sections: Iterable[Section]) -> list[Route]:
        """Return a route for each path of a page, and one for its twin under `/api`."""
        routes = []
        for section in sections:
            by_path: dict[str, dict[str, Page]] = {}
            for page in section.pages:
                by_path.setdefault(page.path, {})[page.method] = page
            for path, methods in by_path.items():
                routes.append(Route(path, _PageEndpoint(self, section, methods, is_api=False)))
                if twins := {method: page for method, page in methods.items() if page.has_twin}:
                    routes.append(Route(f"/api{path.rstrip('/')}", _PageEndpoint(self, section, twins, True)))
        return routes

    async def respond(self, section: Section, page: Page, request: Request, is_api: bool) -> Response:
        """Call the handler of a page, and render what it returns."""
        t = choose_language(request)
        try:
            may_write: bool = request.scope["evalloom.may_write"]
            if page.method != "GET" and not may_write:
                raise RequestError("session_needed", "this changes something, so it needs a session. Sign in at /login")
            form = await _read_form(request) if page.method != "GET" else {}
            path = _written_path(request).removeprefix("/api") if is_api else _written_path(request)
            asked = PageRequest(
                self.site, path or "/", dict(request.path_params), request.query_params, t, may_write, form
            )
            async with self.site.open_work.until_stopped():
                result = await self.run_in_thread(self._result, section, page, asked, is_api)
            return _compressed(request, result)
        except ClientDisconnect:
            raise
        except Exception as error:  # any exception gives an error response
            return _compressed(request, self.error_page(error, request, is_api, t))

    def _result(self, section: Section, page: Page, request: PageRequest, is_api: bool) -> Response:
        result = page.handler(request)
        if isinstance(result, Response):
            return result
        if isinstance(result, Redirect):
            location = request.url(result.path) if "?" not in result.path else result.path
            return json_response({"location": location}) if is_api else RedirectResponse(location, 303)
        return json_response(result.data, result.status) if is_api else self.html(section, result, request)

    def html(self, section: Section, view: View, request: PageRequest) -> Response:
        """Render a view as a page."""
        body = self._renderer.render(section, view, request)
        headers = {
            "content-security-policy": _PAGE_POLICY,
            # Not no-store: going back to a list must be instant, and restore where one was.
            "cache-control": "private, no-cache",
            # With no-referrer, the Origin of our own forms would be null.
            "referrer-policy": "same-origin",
            # The browser fetches the style while it starts to read the page.
            "link": f"<{self._style}>; rel=preload; as=style",
        }
        return Response(body, view.status, headers, "text/html; charset=utf-8")

    def error_page(self, error: Exception, request: Request, is_api: bool, t: Language) -> Response:
        """Return the response for an exception."""
        explained = self.explain(error)
        if is_api or JSON in request.headers.get("accept", ""):
            return error_response(explained)
        may_write = request.scope.get("evalloom.may_write", False)
        asked = PageRequest(self.site, _written_path(request), {}, request.query_params, t, may_write)
        data = {"error": explained.code, "message": explained.message}
        return self.html(ENGINE, View("error.html", data, status_of(explained.code)), asked)

    def explain(self, error: BaseException) -> RequestError:
        """Turn any exception into the error sent to the client; log those the client did not cause to stderr."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, EvalloomError) and error.exit_code == 2:
            return RequestError(error.code, self._redactor.text(str(error).rpartition(" [")[0]))
        is_ours = not isinstance(error, EvalloomError)
        text = self._redactor.text("".join(format_exception(error)) if is_ours else str(error))
        print(text, file=sys.stderr, flush=True)
        if is_ours:
            message = "this is a bug in evalloom; the traceback is on the stderr of the service"
            return RequestError("internal_error", message)
        return RequestError("internal_error", text)

    async def _unknown_path(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        message = f"there is nothing at {quote(scope['path'])}. /openapi.json lists what there is"
        is_api = "text/html" not in request.headers.get("accept", "")
        response = self.error_page(RequestError("not_found", message), request, is_api, choose_language(request))
        await response(scope, receive, send)


class _PageEndpoint:
    """The pages of one path, by method."""

    def __init__(self, app: App, section: Section, pages: dict[str, Page], is_api: bool) -> None:
        self._app = app
        self._section = section
        self._pages = {**pages, **({"HEAD": pages["GET"]} if "GET" in pages else {})}
        self._is_api = is_api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._pages.get(scope["method"])
        request = Request(scope, receive)
        if page is None:
            allowed = ", ".join(self._pages)
            error = RequestError("method_not_allowed", f"expected {allowed} here, got {quote(scope['method'])}")
            response = error_response(error, {"Allow": allowed})
        else:
            try:
                response = await self._app.respond(self._section, page, request, self._is_api)
            except ClientDisconnect:
                return
        await response(scope, receive, send)


def _written_path(request: Request) -> str:
    """Return the path as it was sent, for links to the same page: a file's name may have `?` or `%` in it."""
    return quote_path(request.scope["path"], safe="/:@~-._!$&'()*+,;=")


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, or of a JSON object whose values are texts, numbers, or lists of them."""
    kind = parse_media_type(request, [JSON, _FORM])
    body = await read_body(request)
    if kind == _FORM:
        try:
            text = body.decode()
            return parse_qs(text, keep_blank_values=True, max_num_fields=10_000)
        except ValueError:
            raise RequestError("validation_failed", "body: expected the fields of a form as UTF-8") from None
    value = parse_json(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise RequestError("validation_failed", "body: expected a JSON object")
    lists = {name: each if isinstance(each, list) else [each] for name, each in value.items()}
    return {name: [_text(item) for item in items] for name, items in lists.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else ""
    return "" if value is None else str(value)


def _compressed(request: Request, response: Response) -> Response:
    """Compress a body that is worth it, if the client accepts that."""
    body = bytes(response.body) if hasattr(response, "body") else b""
    if len(body) < _LEAST_COMPRESSED or "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    response.body = gzip.compress(body, 4, mtime=0)
    response.headers["content-length"] = str(len(response.body))
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"
    return response
