"""Builds responses: JSON, errors and server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from evalloom.core.model import Record
from evalloom.replay.schemas import RequestError

JSON = "application/json"
EVENTS = "text/event-stream"

STATUSES = {
    "unauthorized": 401,
    "foreign_origin": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "unknown_host": 421,
    "internal_error": 500,
}
"""HTTP status by error code; codes ending in _not_found are 404, all others 400."""

_encode = msgspec.json.Encoder().encode


def status_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    return STATUSES.get(code) or (404 if code.endswith("_not_found") else 400)


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; bytes are sent as they are."""
    body = value if isinstance(value, bytes) else _encode(value)
    return Response(body, status, headers, JSON)


def created(value: Any, at: str) -> Response:
    """Return a 201 response with its Location."""
    return json(value, 201, {"Location": at})


def no_content() -> Response:
    """Return a 204 response."""
    return Response(status_code=204)


def error_body(error: RequestError) -> Record:
    """Return the JSON body of an error, for a response or an event."""
    return {"error": error.code, "message": error.message, **error.details}


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error."""
    return json(error_body(error), status_of(error.code), headers)


def event(name: str, payload: bytes) -> bytes:
    """Encode a server-sent event; encoded JSON has no line breaks, so it fits one data line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


class Events(StreamingResponse):
    """A stream of events that closes its generator as soon as the client disconnects."""

    media_type = EVENTS

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().stream_response(send)
