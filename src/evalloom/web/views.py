"""The pages of the engine: one module for each view."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evalloom.pages.page import Section
from evalloom.web import batch, batches, jobs, run
from evalloom.web.events import live_events
from evalloom.web.render import TEMPLATES, Renderer

ENGINE = Section(
    "",
    "",
    (
        *batches.PAGES,
        *batch.PAGES,
        *run.PAGES,
        *jobs.PAGES,
    ),
    TEMPLATES,
)


def stream_routes(renderer: Renderer) -> list[Route]:
    """Return the streams of live progress: of all running batches, and of one."""

    async def live(request: Request) -> Response:
        return live_events(request, renderer, ENGINE)

    return [Route("/api/live", live), Route("/api/live/{batch}", live)]
