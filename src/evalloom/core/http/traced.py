"""Sends one request, and adds it to the trace of a run with its answer or its error."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.http.attempts import status_error
from evalloom.core.http.client import Client
from evalloom.core.http.reply import Reply
from evalloom.core.model import Record
from evalloom.core.text import clamp, quote

_LONGEST_DETAIL = 300


class HttpRequest(Struct, frozen=True):
    """One request; `shown` is its URL without secrets."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    shown: str


async def send_traced(client: Client, request: HttpRequest, trace: list[Record]) -> Reply:
    """Send a request. Raises CallError also for a status other than 2xx."""
    entry: Record = {"type": "http", "method": request.method, "url": clamp(request.shown)}
    if request.body is not None:
        entry["request"] = clamp(request.body.decode("utf-8", "replace"))
    trace.append(entry)
    started = perf_counter()
    try:
        reply = await client.send(request.method, request.url, request.body, request.headers)
    except CallError as error:
        entry["error"] = str(error)
        raise
    finally:
        entry["duration_s"] = round(perf_counter() - started, 6)
    text = reply.body.decode("utf-8", "replace")
    entry |= {"status": reply.status, "response": clamp(text)}
    if not 200 <= reply.status < 300:
        # Without the query, which may hold the inputs of the case: equal errors must read alike.
        raise status_error(reply, _server_message(reply, text), request.url.partition("?")[0])
    return reply


def _server_message(reply: Reply, text: str) -> str:
    """Return the message of the server for a status other than success."""
    if 300 <= reply.status < 400:
        return f"redirects are not followed; it points to {quote(reply.headers.get('location', ''), 200)}"
    return " ".join(text[:_LONGEST_DETAIL].split())
