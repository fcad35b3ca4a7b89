"""Sends a batch to an OpenTelemetry collector, as OTLP/JSON over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.http import Client, Reply, display_url, join_path, retry, status_error
from evalloom.core.model import Record
from evalloom.core.text import one_line
from evalloom.engine.loop import run_loop
from evalloom.reports.run_otel import requests
from evalloom.reports.run_report import RunReport, encode

_PATH = "/v1/traces"
_MOST_BYTES = 1024 * 1024
"""Collectors accept a few MiB a request."""


class Sent(Struct, frozen=True):
    """How many runs were sent, and how many of their spans the collector rejected, with its reason."""

    runs: int = 0
    rejected: int = 0
    reason: str = ""


def traces_url(url: str) -> str:
    """Return the address for traces: that of a collector gets the path of OTLP, and any other path stays."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise usage_error("bad_option", f"--otlp: expected a URL such as http://localhost:4318, got {url!r}")
    return url if urlsplit(url).path.strip("/") else join_path(url, _PATH)


def headers_in(text: str) -> dict[str, str]:
    """Read the headers of OTEL_EXPORTER_OTLP_HEADERS: `name=value,name=value`, with escapes as in a URL."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def send(report: RunReport, url: str, headers: dict[str, str], with_content: bool = False) -> Sent:
    """Send all runs, several at a time; raise if the collector cannot be reached or refuses them."""
    return run_loop(_send(requests(report, with_content), traces_url(url), headers))


async def _send(lines: Iterable[Record], url: str, headers: dict[str, str]) -> Sent:
    client = Client(timeout_s=30.0)
    headers = {**headers, "Content-Type": "application/json"}
    sent = Sent()
    try:
        for runs, body in _bodies(lines):

            async def post(body: bytes = body) -> Reply:
                reply = await client.send("POST", url, body, headers)
                if not 200 <= reply.status < 300:
                    raise status_error(reply, one_line(reply.body.decode("utf-8", "replace"), 200), url)
                return reply

            reply, _ = await retry(post)
            rejected, reason = _rejected(reply.body)
            sent = Sent(sent.runs + runs, sent.rejected + rejected, sent.reason or reason)
    except CallError as error:
        message = f"--otlp {display_url(url)}: {error.message}. Runs sent before: {sent.runs:,}"
        raise EvalloomError("otlp_failed", message) from None
    finally:
        await client.close()
    return sent


def _bodies(lines: Iterable[Record]) -> Iterator[tuple[int, bytes]]:
    """Yield requests of about a megabyte, each with its number of runs."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        part = encode(line["resourceSpans"][0])
        if parts and size + len(part) > _MOST_BYTES:
            yield len(parts), _body(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield len(parts), _body(parts)


def _body(parts: list[bytes]) -> bytes:
    return b'{"resourceSpans":[' + b",".join(parts) + b"]}"


def _rejected(body: bytes) -> tuple[int, str]:
    """Read how many spans a collector rejected; one that accepts all of them may answer with nothing."""
    try:
        partial = msgspec.json.decode(body)["partialSuccess"]
        return int(partial.get("rejectedSpans") or 0), str(partial.get("errorMessage") or "")
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return 0, ""
