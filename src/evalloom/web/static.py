"""The stylesheet and the scripts of pages. Their paths contain a digest, so that browsers keep them forever."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evalloom.core.digest import digest_bytes
from evalloom.pages.errors import RequestError
from evalloom.pages.http import error_response
from evalloom.pages.page import Section
from evalloom.ui.html import TEMPLATES as UI_TEMPLATES

SHARED = Path(__file__).parent.parent / "pages" / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_KEPT = "public, max-age=31536000, immutable"


class StaticFiles:
    """All static files in memory: those that pages share, and those of each section in a folder of its name."""

    def __init__(self, sections: Iterable[Section]) -> None:
        files = {path.name: path.read_bytes() for path in sorted(SHARED.iterdir())}
        # One stylesheet: the components that reports have too, the frame of pages, and the views of the engine.
        styles = [name for name in files if name.endswith(".css")]
        files["style.css"] = b"".join([(UI_TEMPLATES / "style.css").read_bytes(), *map(files.pop, styles)])
        for section in sections:
            for path in sorted(section.static.iterdir()) if section.static else ():
                files[f"{section.name}/{path.name}"] = path.read_bytes()
        self._prefix = f"/static/{digest_bytes(b''.join(files.values()), 6)}/"
        self._files = {name: (content, gzip.compress(content, 9, mtime=0)) for name, content in files.items()}
        self.routes = [Route("/static/{digest}/{name:path}", self._serve)]

    def url(self, name: str) -> str:
        """Return the path of a static file."""
        if name not in self._files:
            raise KeyError(name)
        return self._prefix + name

    async def _serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            return error_response(RequestError("not_found", "there is no such file"))
        content, compressed = self._files[name]
        is_compressed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"cache-control": _KEPT, "vary": "Accept-Encoding"}
        if is_compressed:
            headers["content-encoding"] = "gzip"
        return Response(compressed if is_compressed else content, 200, headers, _TYPES[Path(name).suffix])
