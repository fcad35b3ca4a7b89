"""Sessions of browsers: a code or the token is exchanged once for a cookie, and a write needs that cookie.

The cookie is signed with a key in the data folder, or with the token, so that it stays valid when the server restarts.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.responses import Response

_DAYS = 30
_KEY_FILE = "session.key"
_CODE_EVERY_S = 5.0
"""Codes are printed at most this often."""


class Sessions:
    """Creates and checks the cookies of one server. `announce` prints an address with a code to the terminal."""

    def __init__(self, folder: Path, token: str, announce: Callable[[str], None]) -> None:
        self._token = token
        self._announce = announce
        self._key = hmac.digest(token.encode(), b"evalloom session", "sha256") if token else _stored_key(folder)
        self._code = ""
        self._printed_at = -_CODE_EVERY_S
        self.port = 0
        """Cookies are shared between the ports of a host, so the name has the port."""

    @property
    def needs_token(self) -> bool:
        """Whether the token opens a session; otherwise a code from the terminal does."""
        return bool(self._token)

    def new_code(self) -> str:
        """Return a code that opens one session; the one before is no longer valid."""
        self._code = secrets.token_urlsafe(16)
        return self._code

    def print_code(self) -> None:
        """Print an address with a new code, for somebody at the terminal of this server."""
        if not self._token and time.monotonic() - self._printed_at >= _CODE_EVERY_S:
            self._printed_at = time.monotonic()
            self._announce(self.new_code())

    def accepts(self, secret: str) -> bool:
        """Whether a code or a token opens a session. A code is used up by it."""
        if self._token:
            return hmac.compare_digest(secret.strip().encode(), self._token.encode())
        is_right = bool(self._code) and hmac.compare_digest(secret.strip().encode(), self._code.encode())
        if is_right:
            self._code = ""
        return is_right

    def open(self, response: Response, is_https: bool) -> None:
        """Add a valid cookie to a response."""
        until = str(int(time.time()) + _DAYS * 86_400)
        value = f"{until}.{self._signature(until)}"
        response.set_cookie(
            self._name, value, max_age=_DAYS * 86_400, httponly=True, samesite="strict", secure=is_https
        )

    def is_valid(self, cookies: str) -> bool:
        """Whether the header `Cookie` has a valid session."""
        try:
            morsel = SimpleCookie(cookies).get(self._name)
        except CookieError:
            return False
        until, _, signature = (morsel.value if morsel else "").partition(".")
        is_ours = hmac.compare_digest(signature.encode(), self._signature(until).encode())
        return is_ours and until.isdecimal() and int(until) > time.time()

    @property
    def _name(self) -> str:
        return f"evalloom_{self.port}"

    def _signature(self, until: str) -> str:
        return hmac.digest(self._key, f"{self._name} {until}".encode(), "sha256").hex()


def _stored_key(folder: Path) -> bytes:
    """Return the key in a folder, which only its user can read; make one if there is none."""
    path = folder / _KEY_FILE
    with suppress(OSError):
        if len(key := path.read_bytes()) >= 32:
            return key
    key = secrets.token_bytes(32)
    with suppress(OSError):  # a folder that cannot be written: sessions end with the server
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(key)
    return key
