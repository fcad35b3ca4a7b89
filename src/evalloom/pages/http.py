"""Parses HTTP requests and builds responses: query parameters, bodies, JSON, errors and server-sent events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError

OPEN_PATHS = ("/healthz",)
"""Paths that need no token."""
JSON = "application/json"
EVENTS = "text/event-stream"
MAX_BODY_BYTES = 64_000_000
BODY_WAIT_S = 60.0
"""The longest pause between two parts of a body: what has arrived of it stays in memory."""
_MAX_FIELDS = 100
_FORM = "application/x-www-form-urlencoded"
_BROWSER_HEADERS = ("origin", "referer", "cookie", "accept-language", "upgrade-insecure-requests")
"""Headers that browsers send, in addition to sec-…; curl and urllib send none of them."""
_INTEGER = lazy_pattern(r"-?[0-9]{1,1000}")
_CHARSET = lazy_pattern(r";\s*charset=\"?([\w.:-]+)", re.IGNORECASE)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_STATUSES = {
    "unauthorized": 401,
    "foreign_origin": 403,
    "session_needed": 403,
    "not_allowed_here": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "unknown_host": 421,
    "internal_error": 500,
    "service_stopping": 503,
    "batch_unreadable": 409,
}
"""HTTP status by error code; codes ending in _not_found are 404, all others 400."""


class Parameter(Struct, frozen=True):
    """A query parameter; its JSON Schema is both documented and enforced."""

    name: str
    schema: Record
    description: str
    too_large_code: str = "validation_failed"
    """The error code for a number above the maximum."""


# -- query --------------------------------------------------------------------------------------------


def parse_query(query: bytes, parameters: Collection[Parameter]) -> Record:
    """Parse the query string of an endpoint; missing parameters get their default."""
    values = {parameter.name: parameter.schema.get("default") for parameter in parameters}
    if not query or not values:
        return values
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise RequestError("validation_failed", f"query: expected at most {_MAX_FIELDS} parameters, got more") from None
    texts: dict[str, str] = {}
    for name, text in fields:
        if name in texts and name in values:
            raise RequestError("validation_failed", f"{name}: expected once, got more than once")
        texts[name] = text
    for parameter in parameters:
        if parameter.name in texts:
            values[parameter.name] = _parse_value(parameter, texts[parameter.name])
    return values


def _parse_value(parameter: Parameter, text: str) -> Any:
    schema = parameter.schema
    if schema["type"] == "integer":
        expected = f"a whole number from {schema['minimum']:,} to {schema['maximum']:,}"
        _expect(bool(_INTEGER.fullmatch(text)), parameter, expected, text)
        _expect(int(text) >= schema["minimum"], parameter, expected, text)
        _expect(int(text) <= schema["maximum"], parameter, expected, text, parameter.too_large_code)
        return int(text)
    if schema["type"] == "boolean":
        _expect(text in ("true", "false"), parameter, "true or false", text)
        return text == "true"
    if "pattern" in schema:
        expected = f"a text that is not blank, of at most {schema['maxLength']} characters"
        _expect(bool(text.strip()) and len(text) <= schema["maxLength"], parameter, expected, text)
    if "enum" in schema:
        _expect(text in schema["enum"], parameter, " or ".join(schema["enum"]), text)
    return text


def _expect(is_met: bool, parameter: Parameter, expected: str, text: str, code: str = "validation_failed") -> None:
    if not is_met:
        raise RequestError(code, f"{parameter.name}: expected {expected}, got {quote(text)}")


# -- body ---------------------------------------------------------------------------------------------


async def read_body(request: Request) -> bytes:
    """Read the whole body, counting its bytes because Content-Length is optional; no part may be late."""
    too_large = RequestError("body_too_large", f"body: expected at most {MAX_BODY_BYTES:,} bytes, got more")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > MAX_BODY_BYTES:
        raise too_large
    chunks, size, now = [], 0, asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(BODY_WAIT_S) as limit:
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise too_large
                chunks.append(chunk)
                limit.reschedule(now() + BODY_WAIT_S)
    except TimeoutError:
        message = f"body: expected its next part within {BODY_WAIT_S:g} s, got none after {size:,} bytes"
        raise RequestError("body_timeout", message) from None
    return b"".join(chunks)


def parse_media_type(request: Request, accepted: Sequence[str]) -> str:
    """Return the media type of the body, one of `accepted`; without a Content-Type, the first."""
    sent = request.headers.get("content-type", "")
    media_type = sent.partition(";")[0].strip().lower() or accepted[0]
    # curl -d and urllib send the form type by default. HTML forms send it too, but from a browser.
    if media_type == _FORM and not _is_from_browser(request):
        media_type = accepted[0]
    if media_type not in accepted:
        raise RequestError(
            "unsupported_media_type", f"Content-Type: expected {' or '.join(accepted)}, got {quote(sent)}"
        )
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise RequestError("unsupported_media_type", f"Content-Encoding: expected none, got {quote(encoding)}")
    return media_type


def _is_from_browser(request: Request) -> bool:
    """Whether a request shows a sign of a browser; an old one may send neither Origin nor Sec-Fetch-Site."""
    names = request.headers.keys()
    return (
        any(name in _BROWSER_HEADERS or name.startswith("sec-") for name in names)
        # Every browser calls itself that, and few other programs do.
        or request.headers.get("user-agent", "").startswith("Mozilla/")
    )


def parse_charset(request: Request) -> str:
    """Return the charset of the Content-Type, empty if it has none."""
    match = _CHARSET.search(request.headers.get("content-type", ""))
    return match[1] if match else ""


def parse_json(body: bytes) -> Any:
    """Decode a JSON body."""
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        message = str(error) if body.strip() else "it is empty"
    except UnicodeDecodeError:
        message = "it is not UTF-8"
    except RecursionError:
        message = "it is nested too deeply"
    hint = ". To send rows, set the Content-Type to application/x-ndjson or text/csv" if b"\n" in body.strip() else ""
    raise RequestError("validation_failed", f"body: expected JSON, got something else: {message}{hint}")


# -- responses ------------------------------------------------------------------------------------------


def status_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    return _STATUSES.get(code) or (404 if code.endswith("_not_found") else 400)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; bytes are sent as they are."""
    body = value if isinstance(value, bytes) else _encode(value)
    return Response(body, status, headers, JSON)


def created_response(value: Any, location: str) -> Response:
    """Return a 201 response; `location` is the path of the new resource."""
    return json_response(value, 201, {"Location": location})


def no_content() -> Response:
    """Return a 204 response."""
    return Response(status_code=204)


def error_body(error: RequestError) -> Record:
    """Return the JSON body of an error, for a response or an event."""
    return {"error": error.code, "message": error.message, **error.details}


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error."""
    return json_response(error_body(error), status_of(error.code), headers)


def encode_event(name: str, payload: bytes) -> bytes:
    """Encode a server-sent event; encoded JSON has no line breaks, so it fits one data line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


class EventStream(StreamingResponse):
    """A stream of events that closes its generator as soon as the client disconnects."""

    media_type = EVENTS

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().stream_response(send)
