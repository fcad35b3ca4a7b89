"""An HTTP endpoint as a target: builds a request from the inputs, and extracts the output from the response."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlencode, urlsplit
from urllib.parse import quote as escape

from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, TargetUnavailable, usage_error
from evalloom.core.http import Client, HttpRequest, is_secret, retry, send_traced
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import list_names, quote
from evalloom.core.value import read_json, read_text
from evalloom.targets.base import TIMEOUT_S, BuiltTarget, TargetOptions, bad_spec, text_in, time_limit, within
from evalloom.targets.template import MISSING, Template, as_text, compile_json, follow, json_text

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITHOUT_BODY = ("GET", "DELETE")
_VARIABLE = lazy_pattern(r"\$\{(\w+)\}")
_SECRET_HEADERS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")
_IN_A_ROW = 10
"""So many calls in a row without a connection end the batch, as they do for an llm (`llms/outage.py`)."""


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{http: URL, method, query, headers, body, response}`."""
    limit = time_limit(spec, options) or TIMEOUT_S
    headers, secrets = _headers(spec, options.environment)
    target = EndpointTarget(spec, headers, limit)
    return BuiltTarget(
        name=text_in(spec, "name") or f"http:{target.shown(spec['http'].strip())}",
        kind="http",
        # As written: the digest must not change with the value of a key.
        digest=digest_of("http", {key: value for key, value in spec.items() if key not in ("name", "timeout_s")}),
        call=within(target, limit, _last_attempt),
        variables=target.variables,
        # What is no secret by its looks, such as a tenant's number, must not be taken out of every log.
        secrets=tuple(filter(is_secret, (*secrets, *target.passwords))),
        closing=target.close,
    )


class EndpointTarget:
    """Sends one request per case over pooled connections, and retries transient errors.

    A server that cannot be reached ends the batch: at once if no call has reached it yet, later after some in a row.
    """

    def __init__(self, spec: Record, headers: Mapping[str, str], limit: float) -> None:
        self._method = _method(spec)
        self._url, self.passwords = _url(spec)
        self._query, in_query = compile_json(_query(spec), "target: query")
        self._body, content_type, in_body = _body(spec, self._method)
        self._headers = {**content_type, **headers}
        path = text_in(spec, "response").strip().removeprefix("$")
        self._path = path if not path or path[0] in ".[" else f".{path}"
        # A little longer than the whole call may take, so that it is the call that is given up, once.
        self._timeout_s = limit + 5
        self._client = Client(self._timeout_s)
        self.variables = self._url.variables | in_query | in_body
        # A host from the inputs is wrong for its case only.
        self._is_one_server = "{" not in urlsplit(text_in(spec, "http").strip()).netloc
        self._was_reached = False
        self._refused = 0

    async def __call__(self, inputs: Record, context: Context) -> Output:
        url = self._full_url(inputs)
        request = HttpRequest(self._method, url, self._headers, self._body(inputs), self.shown(url))
        try:
            reply, _ = await retry(lambda: send_traced(self._client, request, context.trace))
        except CallError as error:
            self._note_failure(error)
            raise
        self._was_reached, self._refused = True, 0
        return Output(self._value(reply.body))

    def _note_failure(self, error: CallError) -> None:
        """Raise TargetUnavailable if the error shows that the server is not there."""
        if error.code != "cannot_connect":
            self._was_reached, self._refused = True, 0
            return
        self._refused += 1
        if self._is_one_server and (not self._was_reached or self._refused >= _IN_A_ROW):
            calls = f"{self._refused} calls in a row failed, the last with: " if self._was_reached else ""
            raise TargetUnavailable(f"the target does not answer: {calls}{error.message}") from None

    async def close(self) -> None:
        client, self._client = self._client, Client(self._timeout_s)
        await client.close()

    def shown(self, url: str) -> str:
        """Return a URL without its secrets."""
        return url.replace(f":{self.passwords[0]}@", ":…@") if self.passwords else url

    def _full_url(self, inputs: Record) -> str:
        url, query = self._url.render(inputs), self._query(inputs)
        if not query:
            return url
        pairs = {name: as_text(value) for name, value in query.items() if value is not None}
        return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs, errors='replace')}"

    def _value(self, body: bytes) -> Any:
        """Return the response, or the part of it that the spec names."""
        if not self._path:
            return read_text(body)
        try:
            answer = read_json(body)
        except ValueError:
            start = quote(body[:200].decode("utf-8", "replace"), 100)
            raise CallError("bad_answer", f"expected JSON with {self._path.lstrip('.')}, got {start}") from None
        value = follow(answer, self._path)
        if value is MISSING:
            has = f"; the answer has {list_names(answer)}" if isinstance(answer, dict) else ""
            raise CallError("bad_answer", f"response: there is nothing at {self._path.lstrip('.')} in the answer{has}")
        return value


def _last_attempt(context: Context) -> str:
    """Say how the last attempt ended, if time ran out before the next one did."""
    for entry in reversed(context.trace):
        if "error" in entry:
            return f"; the last attempt: {entry['error'].rpartition(' [')[0]}"
        if "status" in entry:
            return f"; the last attempt: HTTP {entry['status']}"
    return ""


def _method(spec: Record) -> str:
    method = text_in(spec, "method", "POST").upper()
    if method not in _METHODS:
        raise bad_spec("method", ", ".join(_METHODS), method)
    return method


def _url(spec: Record) -> tuple[Template, tuple[str, ...]]:
    """Return the template of the URL, and all forms of the password in it."""
    url = text_in(spec, "http").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise bad_spec("http", "a URL like http://host:port/path", url)
    template = Template(url, "target: url", lambda value: escape(as_text(value), safe="", errors="replace"))
    return template, _passwords(parts)


def _passwords(parts: SplitResult) -> tuple[str, ...]:
    """Return a password as written, decoded, and as a header has it with the name: a server may repeat any of them."""
    if not parts.password:
        return ()
    plain = unquote(parts.password)
    pair = f"{unquote(parts.username or '')}:{plain}"
    return tuple(dict.fromkeys((parts.password, plain, b64encode(pair.encode("utf-8", "replace")).decode())))


def _query(spec: Record) -> Record:
    query = spec.get("query") or {}
    if not isinstance(query, dict):
        raise bad_spec("query", "an object", query)
    return query


def _headers(spec: Record, environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Replace `${NAME}` in headers by the environment, and return the values used."""
    headers = spec.get("headers") or {}
    if not isinstance(headers, dict):
        raise bad_spec("headers", "an object", headers)
    secrets: list[str] = []
    return {name: _header(name, value, environment, secrets) for name, value in headers.items()}, tuple(secrets)


def _header(name: str, value: Any, environment: Mapping[str, str], secrets: list[str]) -> str:
    def from_environment(match: re.Match[str]) -> str:
        if not environment.get(match[1]):
            raise usage_error(
                "variable_missing", f"target: headers.{name}: {match[1]} is not set. Set it and run again"
            )
        secrets.append(environment[match[1]])
        return environment[match[1]]

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise bad_spec(f"headers.{name}", "a string", value)
    if "{{" in str(value):
        raise bad_spec(f"headers.{name}", "a text that is the same for every case", value)
    if name.lower() in _SECRET_HEADERS and not _VARIABLE.search(str(value)):
        # Written out in the file, but a secret all the same: the last word of `Bearer KEY`.
        secrets += str(value).split()[-1:]
    filled = _VARIABLE.sub(from_environment, str(value))
    if not filled.isprintable() or not re.fullmatch(r"[!#$%&'*+.^_`|~\w-]+", name, re.ASCII):
        # The value may be a key, so the message does not show it.
        raise usage_error("bad_target_settings", f"target: headers.{quote(name)}: expected a header on one line")
    return filled


_Body = Callable[[Record], bytes | None]


def _body(spec: Record, method: str) -> tuple[_Body, dict[str, str], frozenset[str]]:
    """Return a function that builds the body, its Content-Type, and the inputs that it needs."""
    written = spec.get("body")
    as_json = {"Content-Type": "application/json"}
    if written is None:
        if method in _WITHOUT_BODY:
            return lambda inputs: None, {}, frozenset()
        return lambda inputs: _encoded(json_text(inputs)), as_json, frozenset()
    if isinstance(written, str):
        # JSON text is filled as a value, so that no input can break its quotes.
        value = read_text(_encoded(written))
        if value is None or isinstance(value, str):
            text = Template(written, "target: body")
            return (
                lambda inputs: _encoded(text.render(inputs)),
                {"Content-Type": "text/plain; charset=utf-8"},
                text.variables,
            )
        written = value
    fill, variables = compile_json(written, "target: body")
    return lambda inputs: _encoded(json_text(fill(inputs))), as_json, variables


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
