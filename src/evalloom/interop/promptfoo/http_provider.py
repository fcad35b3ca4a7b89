"""Providers of a promptfoo config that are an HTTP address: the request is filled in from the prompt and the test."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from evalloom.core.errors import CallError
from evalloom.core.http import Client, HttpRequest, Reply, retry, send_traced
from evalloom.core.model import Context, Record
from evalloom.core.text import describe, quote, shorten
from evalloom.interop.promptfoo import files, templates
from evalloom.interop.promptfoo.code import Scripts
from evalloom.interop.promptfoo.files import FileProblem
from evalloom.interop.promptfoo.providers import Provider
from evalloom.interop.promptfoo.target import output_of

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def why_unusable(provider: Provider) -> str:
    """Return why an HTTP provider cannot be called; empty if it can."""
    config = provider.config
    if "request" in config:
        return f"{provider.name}: a raw HTTP request is not read here; write url, method, headers and body"
    url = url_of(provider)
    if "{{" not in url:
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port or an IPv6 address that is none
            is_address = False
        if not is_address:
            return f"{provider.name}: config.url: expected an address like https://host/path, got {quote(url)}"
    if (method := str(config.get("method", "POST")).upper()) not in _METHODS:
        return f"{provider.name}: config.method: expected {', '.join(_METHODS)}, got {quote(method)}"
    return ""


def url_of(provider: Provider) -> str:
    written = provider.config.get("url")
    return written if isinstance(written, str) else provider.id if "//" in provider.id else ""


class HttpProvider:
    """Sends one request for each test, and takes the output from the answer."""

    def __init__(self, provider: Provider, scripts: Scripts, base: str, timeout_s: float) -> None:
        config = provider.config
        self._provider = provider
        self._scripts = scripts
        self._base = base
        self._url = url_of(provider)
        self._body = self._file(config.get("body"))
        has_body = self._body is not None
        self._method = str(config.get("method") or ("POST" if has_body else "GET")).upper()
        self._headers = config["headers"] if isinstance(config.get("headers"), dict) else {}
        self._query = config["queryParams"] if isinstance(config.get("queryParams"), dict) else {}
        parser = config.get("transformResponse", config.get("responseParser"))
        self._parser = parser if isinstance(parser, str) else ""
        request = config.get("transformRequest")
        self._request = request if isinstance(request, str) else ""
        self._client = Client(timeout_s)

    def _file(self, value: Any) -> Any:
        try:
            return files.read(value, self._base).value if files.is_file(value) else value
        except FileProblem:
            return value

    async def __call__(self, prompt: str, variables: Record, context: Context) -> Any:
        filled = {**variables, "prompt": await self._transformed(prompt, variables)}
        try:
            url = self._url_with(filled)
            request = HttpRequest(self._method, url, self._filled_headers(filled), self._filled_body(filled), url)
        except templates.TemplateError as error:
            raise CallError("bad_template", f"{self._provider.name}: {error}") from None
        reply, _ = await retry(lambda: send_traced(self._client, request, context.trace))
        return await self._output(reply, variables)

    async def close(self) -> None:
        await self._client.close()

    async def _transformed(self, prompt: str, variables: Record) -> Any:
        if not self._request:
            return prompt
        if "{{" in self._request:
            try:
                return templates.render(self._request, {**variables, "prompt": prompt})
            except templates.TemplateError as error:
                raise CallError("bad_template", f"transformRequest: {error}") from None
        return await self._scripts.transform(self._request, prompt, variables, prompt)

    def _url_with(self, filled: Record) -> str:
        url = templates.render(self._url, filled)
        pairs = {name: templates.render(templates.text_of(value), filled) for name, value in self._query.items()}
        return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}" if pairs else url

    def _filled_headers(self, filled: Record) -> dict[str, str]:
        headers = {
            str(name): templates.render(templates.text_of(value), filled) for name, value in self._headers.items()
        }
        if any(not value.isprintable() for value in headers.values()):
            raise CallError("unusable_input", f"{self._provider.name}: a header has a line break in it")
        if self._body is not None and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json" if not isinstance(self._body, str) else "text/plain"
        return headers

    def _filled_body(self, filled: Record) -> bytes | None:
        if self._body is None:
            return None
        if isinstance(self._body, str):
            return self._filled_text(self._body, filled).encode("utf-8", "replace")
        return json.dumps(_filled(self._body, filled), ensure_ascii=False).encode("utf-8", "replace")

    def _filled_text(self, body: str, filled: Record) -> str:
        """Fill in a body that is a text. JSON is filled as a value, so that no prompt can break its quotes."""
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            return templates.render(body, filled)
        return json.dumps(_filled(parsed, filled), ensure_ascii=False)

    async def _output(self, reply: Reply, variables: Record) -> Any:
        text = reply.body.decode("utf-8", "replace")
        try:
            parsed = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            parsed = None
        if not self._parser:
            return parsed if parsed is not None else text
        context = {"response": {"status": reply.status, "headers": dict(reply.headers)}, "vars": variables}
        context["vars"] = {name: value for name, value in variables.items() if name != "env"}
        what = f"transformResponse {shorten(self._parser, 40)}"
        names = {"json": parsed, "text": text, "context": context}
        if files.is_file(self._parser):
            answer = await self._scripts.javascript(self._parser, names, what)
        else:
            answer = await self._scripts.expression(self._parser, names, what)
        if answer is None:
            raise CallError("bad_answer", f"{what}: expected a value in the answer, got {describe(answer)}")
        return output_of(answer, what) if isinstance(answer, dict) and {"output", "error"} & answer.keys() else answer


def _filled(value: Any, variables: Record) -> Any:
    if isinstance(value, str):
        name = value.strip()[2:-2].strip() if value.strip().startswith("{{") and value.strip().endswith("}}") else ""
        # A single variable keeps its type: a list of messages stays a list.
        if name in variables and not isinstance(variables[name], str):
            return variables[name]
        return templates.render(value, variables)
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if isinstance(value, dict):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    return value
