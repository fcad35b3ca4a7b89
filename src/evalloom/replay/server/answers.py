"""What goes out: JSON, errors of one form, and events."""

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
"""The status of a code; what is not found is 404, and every other code says that the request is wrong."""

_encode = msgspec.json.Encoder().encode


def status_of(code: str) -> int:
    """The HTTP status under which a code is sent."""
    return STATUSES.get(code) or (404 if code.endswith("_not_found") else 400)


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as a JSON answer; bytes are JSON already."""
    body = value if isinstance(value, bytes) else _encode(value)
    return Response(body, status, headers, JSON)


def created(value: Any, at: str) -> Response:
    """What was made, and where it can be had."""
    return json(value, 201, {"Location": at})


def nothing() -> Response:
    """Done, and there is nothing to say."""
    return Response(status_code=204)


def told(error: RequestError) -> Record:
    """A fault as it is sent, in an answer or an event."""
    return {"error": error.code, "message": error.message, **error.details}


def refusal(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that cannot be done."""
    return json(told(error), status_of(error.code), headers)


def event(name: str, payload: bytes) -> bytes:
    """One server-sent event; JSON has no line breaks, so it is one line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


class Events(StreamingResponse):
    """A stream of events; whoever makes them is told at once when nobody reads them any more."""

    media_type = EVENTS

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().stream_response(send)
