"""Live progress as server-sent events. Every event has the whole state, so that a lost connection loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from evalloom.pages.errors import RequestError
from evalloom.pages.http import EventStream, encode_event
from evalloom.pages.live import Progress
from evalloom.pages.page import Section
from evalloom.web.render import Renderer, choose_language

_EVERY_S = 0.5
_HEARTBEAT_S = 10.0
"""Seconds between two events when nothing changes, so that a broken connection is noticed."""


class _Fragments:
    """The HTML of progress bars by batch and language, rendered once for all viewers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Progress, str]] = {}

    def render(self, renderer: Renderer, section: Section, progress: Progress, code: str) -> str:
        known = self._known.get((progress.batch, code))
        if known is not None and known[0] == progress:
            return known[1]
        module = renderer.environment(section, code).get_template("live.html").module
        html = str(module.progress_bar(progress))  # type: ignore[attr-defined]
        if len(self._known) > 1_000:
            self._known.clear()
        self._known[progress.batch, code] = (progress, html)
        return html


_fragments = _Fragments()


def live_events(request: Request, renderer: Renderer, section: Section) -> Response:
    """Stream the progress of one batch, or of all that run: `{"batches": {id: {state, html, progress}}}`."""
    batch = request.path_params.get("batch", "")
    code = choose_language(request).code

    def snapshot() -> bytes:
        live = renderer.site.live
        ids = [batch] if batch else [summary.id for summary in live.running()]
        states = {}
        for id in ids:
            try:
                progress = live.progress(id)
            except RequestError:
                continue  # it was removed meanwhile
            html = _fragments.render(renderer, section, progress, code)
            states[progress.batch] = {"state": progress.state, "html": html, "progress": progress}
        return msgspec.json.encode({"batches": states})

    async def events() -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        loop = asyncio.get_running_loop()
        last, sent_at = b"", 0.0
        while not renderer.site.live.is_ended:
            now = await loop.run_in_executor(None, snapshot)
            if now != last or loop.time() - sent_at > _HEARTBEAT_S:
                last, sent_at = now, loop.time()
                yield encode_event("progress", now)
            await asyncio.sleep(_EVERY_S)

    return EventStream(events(), headers={"cache-control": "no-cache"})
