"""Runs the HTTP server in this process until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlencode

import msgspec
import uvicorn
from msgspec import Struct, structs
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evalloom.console.process import exit_process
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.engine.system import Catalog
from evalloom.pages.errors import RequestError
from evalloom.pages.http import JSON, error_body
from evalloom.pages.site import Permissions, Site
from evalloom.settings import Settings, environment
from evalloom.web.app import App
from evalloom.web.guard import HEADERS, LOOPBACK, host_name, is_loopback
from evalloom.web.sessions import Sessions

_LEAST_TOKEN = 16
# Seconds after a signal. What was answered is on disk at any time, because an answer comes after the commit.
_FINISH_S = 2
"""Until requests that are still open are interrupted and answered."""
_CLOSE_S = 3
"""Until the connections of clients that do not read are closed."""
_STOP_S = 4
"""Until the process ends, whatever it is doing."""
_KEEP_ALIVE_S = 60


class ServeOptions(Struct, frozen=True):
    """The address, data folder and access rules of the server."""

    host: str = "127.0.0.1"
    port: int = 8420
    data_dir: Path = Path(".evalloom")
    token: str = ""
    allowed_hosts: tuple[str, ...] = ()
    """Additional Host names, for example of a reverse proxy."""
    permissions: Permissions = Permissions()
    home: Path = Path()
    """The folder of the project."""
    open_path: str | None = None
    """The path of the page that a browser opens; None opens no page and prints the address of the server only."""
    is_opened: bool = False
    """Whether to open the browser."""
    takes_other_port: bool = False
    """Whether another port will do if this one is taken."""


def serve(options: ServeOptions, settings: Settings, catalog: Catalog) -> None:
    """Serve until SIGINT or SIGTERM; print the address to stderr once listening."""
    hosts = _allowed_hosts(options)
    with _listen(options) as listener:
        address = _address(listener)

        def announce(code: str) -> None:
            print(f"Sign in: {address}/login?code={code}", file=sys.stderr, flush=True)

        sessions = Sessions(options.data_dir, options.token, announce)
        sessions.port = listener.getsockname()[1]
        site = Site(catalog, settings, options.data_dir, options.permissions, options.token, options.home)
        app = App(site, sessions, hosts)
        try:
            _Server(_uvicorn_config(app), app, _Start(options, address, sessions)).run([listener])
        finally:
            site.stop()
            app.close()
            site.close()


def token_of(variable: str, folder: Path = Path()) -> str:
    """Read the token from an environment variable."""
    token = environment(folder).get(variable, "").strip()
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        got = f"one of {len(token)}" if token else "none: it is not set"
        message = f"--token-env {variable}: expected a token of at least {_LEAST_TOKEN} plain characters, got {got}"
        raise usage_error("bad_token", message)
    return token


def _allowed_hosts(options: ServeOptions) -> frozenset[str] | None:
    """Return the accepted Host names, or None for any if the token protects the service."""
    if not options.token and (options.allowed_hosts or not is_loopback(options.host)):
        where = options.host if not is_loopback(options.host) else ", ".join(options.allowed_hosts)
        message = f"{where}: others could reach the service, so it needs a token. Set one and name it with --token-env"
        raise usage_error("token_needed", message)
    if not is_loopback(options.host):
        return None
    own = f"[{options.host.strip('[]')}]" if ":" in options.host else options.host
    return LOOPBACK | {host_name(name.lower()) for name in (own, *options.allowed_hosts)}


def _listen(options: ServeOptions) -> socket.socket:
    host = options.host.strip("[]")
    try:
        family, *_, address = socket.getaddrinfo(host, options.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        if options.takes_other_port and error.errno == errno.EADDRINUSE:
            return _listen(structs.replace(options, port=0, takes_other_port=False))
        reason = (error.strerror or str(error)).lower()
        hint = "Choose another --port, or 0 for a free one"
        raise EvalloomError("cannot_listen", f"{host}:{options.port}: cannot listen: {reason}. {hint}") from None


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Start:
    """What happens as soon as the server listens: its address is printed, and the browser opens it."""

    def __init__(self, options: ServeOptions, address: str, sessions: Sessions) -> None:
        self._options = options
        self._address = address
        self._sessions = sessions

    def __call__(self) -> None:
        options = self._options
        if options.open_path is None:
            print(f"evalloom serves {self._address} (data in {options.data_dir})", file=sys.stderr, flush=True)
            return
        query = urlencode({"code": self._sessions.new_code(), "next": options.open_path})
        url = f"{self._address}/login?{query}"
        print(f"evalloom shows {options.home.resolve()} at {self._address}", file=sys.stderr)
        print(f"Open {url}", file=sys.stderr)
        print("The address works once. Ctrl-C ends the server and what it started.", file=sys.stderr, flush=True)
        if options.is_opened:
            # A browser in a terminal would take it over; one that fails to start has its address above.
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()


def _open_browser(url: str) -> None:
    import webbrowser

    with suppress(Exception):  # whatever a browser's start script does
        webbrowser.open(url)


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        # The app logs errors itself; clients could flood the log of uvicorn.
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_S,
    )


class _Protocol(HttpToolsProtocol):
    """HTTP as uvicorn reads it, but trailers are no headers, and what is no HTTP gets an error of our form."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # The app has the list of headers now. Trailers go to another one: a Host among them must not pass the guard.
        self.headers = []

    def send_400_response(self, msg: str) -> None:
        body = msgspec.json.encode(error_body(RequestError("not_http", "expected a request in HTTP/1.1")))
        fields = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = [b"%s: %s\r\n" % field for field in (*fields, *HEADERS)]
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (b"".join(lines), body))
        self.transport.close()


class _Server(uvicorn.Server):
    """A uvicorn server that prints its address and exits cleanly on a signal."""

    def __init__(self, config: uvicorn.Config, app: App, start: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._start = start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(_FINISH_S, self._app.end_open_work)
        # Beside the shutdown: jobs write what they have finished.
        stopping = loop.run_in_executor(None, self._app.site.jobs.stop)
        self._app.site.live.end()
        await super().shutdown(sockets)
        await stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            # A thread may be in a long query, which nothing can interrupt.
            deadline = threading.Timer(_STOP_S, exit_process, [0])
            deadline.daemon = True
            deadline.start()
        # By default uvicorn raises the signal again after the shutdown, which changes the exit code.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
