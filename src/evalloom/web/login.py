"""Sign-in: exchanges the code of the terminal, or the token, for the cookie of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from evalloom.pages.errors import RequestError
from evalloom.pages.http import read_body
from evalloom.pages.page import PageRequest, View
from evalloom.web.render import choose_language
from evalloom.web.sessions import Sessions

if TYPE_CHECKING:
    from evalloom.web.app import App


class Login(Struct, frozen=True):
    """The sign-in form."""

    next: str
    needs_token: bool
    is_wrong: bool = False
    is_signed_in: bool = False


def login_routes(sessions: Sessions, app: App) -> list[Route]:
    """Return the routes of `/login`."""

    async def show(request: Request) -> Response:
        next_path = _own_path(request.query_params.get("next", ""))
        code = request.query_params.get("code", "")
        if code and not sessions.needs_token and sessions.accepts(code):
            return _signed_in(request, next_path)
        may_write = request.scope["evalloom.may_write"]
        if not may_write:
            sessions.print_code()
        return _form(request, Login(next_path, sessions.needs_token, bool(code), may_write))

    async def sign_in(request: Request) -> Response:
        try:
            # Only from our own page: others must not choose which session this browser has.
            if request.headers.get("origin") is None:
                raise RequestError("foreign_origin", "expected a request from the sign-in page")
            fields = parse_qs((await read_body(request))[:10_000].decode("utf-8", "replace"))
            next_path = _own_path(fields.get("next", [""])[0])
            if sessions.accepts(fields.get("secret", [""])[0]):
                return _signed_in(request, next_path)
            return _form(request, Login(next_path, sessions.needs_token, is_wrong=True))
        except RequestError as error:
            return app.error_page(error, request, False, choose_language(request))

    def _form(request: Request, login: Login) -> Response:
        asked = PageRequest(app.site, "/login", {}, request.query_params, choose_language(request), login.is_signed_in)
        from evalloom.web.views import ENGINE

        return app.html(ENGINE, View("login.html", login, 403 if login.is_wrong else 200), asked)

    def _signed_in(request: Request, next_path: str) -> Response:
        response = RedirectResponse(next_path, 303)
        sessions.open(response, request.headers.get("x-forwarded-proto") == "https")
        return response

    return [Route("/login", show, methods=["GET"]), Route("/login", sign_in, methods=["POST"])]


def _own_path(path: str) -> str:
    """Return a path of this server, so that nobody is sent elsewhere."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path and "\r" not in path
    return path if is_own and not path.startswith("/login") else "/"
