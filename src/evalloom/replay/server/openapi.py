"""Builds the OpenAPI document from the table of endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from evalloom import __version__
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.pages.http import JSON, OPEN_PATHS, status_of
from evalloom.replay.server.endpoints import NOUNS, ApiEndpoint, SuccessResponse
from evalloom.replay.server.schemas import components, ref

_ID = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_PATH_PARAMETER = lazy_pattern(r"\{(\w+)\}")
_MEANINGS = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "The object does not exist.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    421: "The Host is not a name of this service.",
    500: "The service failed; its stderr has the details.",
    503: "The service is stopping and did not finish this request.",
}


def document(endpoints: Iterable[ApiEndpoint], profiles: Iterable[str], needs_token: bool) -> Record:
    """Build the OpenAPI document."""
    paths: dict[str, Record] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, needs_token)
    parts: Record = {"schemas": components(profiles)}
    if needs_token:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "evalloom",
            "version": __version__,
            "description": "Context recipes, datasets, replays and their records. Errors are "
            '`{"error": code, "message": …}`, some with more keys.',
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": parts,
    }


def codes_of(endpoint: ApiEndpoint, needs_token: bool) -> list[str]:
    """List the error codes of an endpoint."""
    codes = ["foreign_origin", "unknown_host", "service_stopping", *endpoint.errors]
    if needs_token and endpoint.path not in OPEN_PATHS:
        codes.append("unauthorized")
    codes += [f"{NOUNS[name]}_not_found" for name in _PATH_PARAMETER.findall(endpoint.path)]
    if endpoint.parameters or endpoint.body:
        codes.append("validation_failed")
    if endpoint.body:
        codes += ["body_timeout", "body_too_large", "unsupported_media_type"]
    if any(parameter.too_large_code != "validation_failed" for parameter in endpoint.parameters):
        codes.append("limit_exceeded")
    return sorted(set(codes))


def _operation(endpoint: ApiEndpoint, needs_token: bool) -> Record:
    operation: Record = {"operationId": endpoint.name, "summary": endpoint.summary}
    if parameters := [
        *(
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": _ID,
                "description": f"The id of a {NOUNS[name]}.",
            }
            for name in _PATH_PARAMETER.findall(endpoint.path)
        ),
        *(
            {
                "name": parameter.name,
                "in": "query",
                "required": False,
                "schema": parameter.schema,
                "description": parameter.description,
            }
            for parameter in endpoint.parameters
        ),
    ]:
        operation["parameters"] = parameters
    if endpoint.body:
        content = {kind: {"schema": schema} for kind, schema in endpoint.body.items()}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = {
        str(endpoint.success.status): _success_response(endpoint.success),
        **_error_responses(codes_of(endpoint, needs_token)),
    }
    if needs_token:
        operation["security"] = [] if endpoint.path in OPEN_PATHS else [{"token": []}]
    return operation


def _success_response(success: SuccessResponse) -> Record:
    response: Record = {"description": success.description}
    if success.content:
        response["content"] = {kind: {"schema": schema} for kind, schema in success.content.items()}
    if success.headers:
        response["headers"] = {
            name: {"schema": {"type": "string"}, "description": text} for name, text in success.headers.items()
        }
    if success.links:
        response["links"] = success.links
    return response


def _error_responses(codes: list[str]) -> Record:
    """Build one response per status, with its error codes."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(status_of(code), []).append(code)
    responses = {
        str(status): _error_response(status, status_codes) for status, status_codes in sorted(by_status.items())
    }
    return {**responses, "500": _error_response(500, [])}


def _error_response(status: int, codes: list[str]) -> Record:
    schema: Record = ref("Error")
    if codes:
        schema = {"allOf": [schema, {"properties": {"error": {"enum": codes}}}]}
    return {"description": _MEANINGS[status], "content": {JSON: {"schema": schema}}}
