"""Builds the OpenAPI document from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evalloom import __version__
from evalloom.core.model import Record
from evalloom.replay.server import answers
from evalloom.replay.server.endpoints import NOUNS, Answer, Endpoint
from evalloom.replay.server.guard import OPEN_PATHS
from evalloom.replay.server.parse import Parameter
from evalloom.replay.server.schemas import components, ref

_ID = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_MEANINGS = {
    400: "What was sent is not what is expected.",
    401: "The token is missing or another.",
    403: "A page of another site asks.",
    404: "There is no such thing.",
    413: "The body is too long.",
    415: "The body is of another media type.",
    421: "The Host is no name of this service.",
    500: "The service could not go on; it is told on its stderr.",
}


def document(endpoints: Iterable[Endpoint], profiles: Iterable[str], needs_token: bool) -> Record:
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
            '`{"error": code, "message": …}`, sometimes with more.',
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": parts,
    }


def codes_of(endpoint: Endpoint, needs_token: bool) -> list[str]:
    """List the error codes of an endpoint."""
    codes = ["foreign_origin", "unknown_host", *endpoint.errors]
    if needs_token and endpoint.path not in OPEN_PATHS:
        codes.append("unauthorized")
    codes += [f"{NOUNS[name]}_not_found" for name in _PATH_PARAMETER.findall(endpoint.path)]
    if endpoint.parameters or endpoint.body:
        codes.append("validation_failed")
    if endpoint.body:
        codes += ["body_too_large", "unsupported_media_type"]
    if any(parameter.too_much != "validation_failed" for parameter in endpoint.parameters):
        codes.append("limit_exceeded")
    return sorted(set(codes))


def _operation(endpoint: Endpoint, needs_token: bool) -> Record:
    operation: Record = {"operationId": endpoint.name, "summary": endpoint.summary}
    if parameters := [
        *map(_path_parameter, _PATH_PARAMETER.findall(endpoint.path)),
        *map(_parameter, endpoint.parameters),
    ]:
        operation["parameters"] = parameters
    if endpoint.body:
        content = {kind: {"schema": schema} for kind, schema in endpoint.body.items()}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = {
        str(endpoint.answer.status): _response(endpoint.answer),
        **_error_responses(codes_of(endpoint, needs_token)),
    }
    if needs_token:
        operation["security"] = [] if endpoint.path in OPEN_PATHS else [{"token": []}]
    return operation


def _path_parameter(name: str) -> Record:
    return {"name": name, "in": "path", "required": True, "schema": _ID, "description": f"The id of a {NOUNS[name]}."}


def _parameter(parameter: Parameter) -> Record:
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "schema": parameter.schema,
        "description": parameter.description,
    }


def _response(answer: Answer) -> Record:
    response: Record = {"description": answer.description}
    if answer.content:
        response["content"] = {kind: {"schema": schema} for kind, schema in answer.content.items()}
    if answer.headers:
        response["headers"] = {
            name: {"schema": {"type": "string"}, "description": text} for name, text in answer.headers.items()
        }
    if answer.links:
        response["links"] = answer.links
    return response


def _error_responses(codes: list[str]) -> Record:
    """Build one response per status, with the error codes it may hold."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(answers.status_of(code), []).append(code)
    responses = {
        str(status): _error_response(status, status_codes) for status, status_codes in sorted(by_status.items())
    }
    return {**responses, "500": _error_response(500, [])}


def _error_response(status: int, codes: list[str]) -> Record:
    schema: Record = ref("Error")
    if codes:
        schema = {"allOf": [schema, {"properties": {"error": {"enum": codes}}}]}
    return {"description": _MEANINGS[status], "content": {answers.JSON: {"schema": schema}}}
