"""The HTTP API of replays: routes requests to endpoints and turns exceptions into error responses."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from evalloom.core.errors import EvalloomError
from evalloom.core.text import quote
from evalloom.pages.errors import RequestError
from evalloom.pages.http import (
    JSON,
    error_response,
    json_response,
    parse_charset,
    parse_json,
    parse_media_type,
    parse_query,
    read_body,
)
from evalloom.pages.stopping import OpenWork
from evalloom.replay.requests import check_id
from evalloom.replay.server.endpoints import (
    ENDPOINTS,
    NOUNS,
    ApiEndpoint,
    ApiRequest,
    SuccessResponse,
    list_profiles,
)
from evalloom.replay.server.openapi import document
from evalloom.replay.server.uploads import UPLOADS
from evalloom.replay.service import ReplayService

_THREADS = 8
_LONG_BODY = 1_000_000
"""Longer bodies are decoded in a thread, so that they do not block the event loop."""


class ReplayApi:
    """The HTTP API of a ReplayService, mounted into the app."""

    def __init__(self, service: ReplayService, open_work: OpenWork, token: str = "") -> None:
        self._service = service
        self._open_work = open_work
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="evalloom-service")
        endpoints = (*ENDPOINTS, self._description())
        self._document = msgspec.json.encode(
            document(endpoints, list_profiles(service.settings), needs_token=bool(token))
        )
        by_path: dict[str, dict[str, ApiEndpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self.routes = [Route(path, _Resource(self, methods), name=path) for path, methods in by_path.items()]
        # Match the busiest route first.
        self.routes.sort(key=lambda route: not route.path.endswith("/replay"))

    def close(self) -> None:
        """Wait for running calls, and close the store."""
        self._threads.shutdown()
        self._service.close()

    def _description(self) -> ApiEndpoint:
        """Return the endpoint that serves the OpenAPI document."""

        async def describe(request: ApiRequest) -> Response:
            return json_response(self._document)

        success = SuccessResponse(200, "The document.", {JSON: {"type": "object"}})
        return ApiEndpoint("GET", "/openapi.json", "describe", "Get this document.", describe, success)

    async def respond(self, endpoint: ApiEndpoint, request: Request) -> Response:
        """Call an endpoint and return its response."""
        try:
            ids = {name: check_id(value, NOUNS[name]) for name, value in request.path_params.items()}
            query = parse_query(request.scope["query_string"], endpoint.parameters)
            async with self._open_work.until_stopped():
                body = await self._read_body(request, endpoint) if endpoint.body else ()
                parsed = ApiRequest(self._service, ids, query, self.explain, self._open_work, *body)
                handler: Any = endpoint.handler
                is_async = iscoroutinefunction(handler)
                response: Response = await (handler(parsed) if is_async else self._run_in_thread(handler, parsed))
            return response
        except ClientDisconnect:
            raise
        except Exception as error:  # any exception gives an error response
            return error_response(self.explain(error))

    async def _read_body(self, request: Request, endpoint: ApiEndpoint) -> tuple[Any, str, str]:
        """Return the body, its media type and its charset."""
        kind = parse_media_type(request, list(endpoint.body))
        body: Any = await read_body(request)
        if kind not in UPLOADS:
            body = parse_json(body) if len(body) < _LONG_BODY else await self._run_in_thread(parse_json, body)
        return body, kind, parse_charset(request)

    async def _run_in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def explain(self, error: BaseException) -> RequestError:
        """Turn any exception into the error sent to the client; log those the client did not cause to stderr."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, RecursionError):
            return RequestError("validation_failed", "body: expected at most a few hundred levels, got more")
        is_ours = not isinstance(error, EvalloomError)
        print(self._hide("".join(format_exception(error)) if is_ours else str(error)), file=sys.stderr, flush=True)
        if is_ours:
            return RequestError(
                "internal_error", "this is a bug in evalloom; the traceback is on the stderr of the service"
            )
        return RequestError("internal_error", self._hide(str(error)))

    def _hide(self, text: str) -> str:
        return self._service.redactor.text(text)


class _Resource:
    """The endpoints of one path, by method."""

    def __init__(self, api: ReplayApi, methods: dict[str, ApiEndpoint]) -> None:
        self._api = api
        self._methods = {**methods, **({"HEAD": methods["GET"]} if "GET" in methods else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(self._methods)
            error = RequestError("method_not_allowed", f"expected {allowed} here, got {quote(scope['method'])}")
            response = error_response(error, {"Allow": allowed})
        else:
            try:
                response = await self._api.respond(endpoint, Request(scope, receive))
            except ClientDisconnect:
                return
        await response(scope, receive, send)
