"""Runs the service in this process until it is told to stop."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn
from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.replay.server.app import App, create_app
from evalloom.replay.server.guard import LOOPBACK, is_loopback, name_of
from evalloom.replay.service import ReplayService
from evalloom.settings import Settings, environment

_LEAST_TOKEN = 16
_STOP_S = 10
"""How long a stop waits for what is being answered."""
_KEEP_ALIVE_S = 60


class ServeOptions(Struct, frozen=True):
    """Where the service listens, where its data is, and who may ask it."""

    host: str = "127.0.0.1"
    port: int = 8420
    data_dir: Path = Path(".evalloom")
    token: str = ""
    allowed_hosts: tuple[str, ...] = ()
    """Names beside those of this machine, as a proxy in front of the service passes them on."""


def serve(options: ServeOptions, settings: Settings) -> None:
    """Serves until SIGINT or SIGTERM; says on stderr where, once it listens."""
    hosts = _hosts(options)
    with _listening(options) as listener:
        service = ReplayService(options.data_dir, settings, token=options.token)
        app = create_app(service, options.token, hosts)
        try:
            _Server(_configured(app), _told(listener, options)).run([listener])
        finally:
            app.close()
            service.close()


def token_of(variable: str, folder: Path = Path()) -> str:
    """The token that an environment variable holds."""
    token = environment(folder).get(variable, "").strip()
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        got = f"one of {len(token)}" if token else "none: it is not set"
        message = f"--token-env {variable}: expected a token of at least {_LEAST_TOKEN} plain characters, got {got}"
        raise usage_error("bad_token", message)
    return token


def _hosts(options: ServeOptions) -> frozenset[str] | None:
    """The names that a request may be for; None for any, where the token is the guard."""
    if not options.token and (options.allowed_hosts or not is_loopback(options.host)):
        where = options.host if not is_loopback(options.host) else ", ".join(options.allowed_hosts)
        message = f"{where}: others could reach the service, so it needs a token. Set one and name it with --token-env"
        raise usage_error("token_needed", message)
    if not is_loopback(options.host):
        return None
    own = f"[{options.host.strip('[]')}]" if ":" in options.host else options.host
    return LOOPBACK | {name_of(name.lower()) for name in (own, *options.allowed_hosts)}


def _listening(options: ServeOptions) -> socket.socket:
    host = options.host.strip("[]")
    try:
        family, *_, address = socket.getaddrinfo(host, options.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "Choose another --port, or 0 for a free one"
        raise EvalloomError("cannot_listen", f"{host}:{options.port}: cannot listen: {reason}. {hint}") from None


def _told(listener: socket.socket, options: ServeOptions) -> str:
    host, port, *_ = listener.getsockname()
    return f"evalloom serves http://{f'[{host}]' if ':' in host else host}:{port} (data in {options.data_dir})"


def _configured(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        # What we have to say of a request is said by the app; what uvicorn would say is noise that anybody can cause.
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
    )


class _Server(uvicorn.Server):
    """uvicorn that says where it listens, and for which being stopped is a good end."""

    def __init__(self, config: uvicorn.Config, told: str) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self._told, file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Without this, uvicorn would raise the signal again once it has stopped, and the exit code would tell of it.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
