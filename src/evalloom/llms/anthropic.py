"""Translates between Anthropic's messages API and OpenAI's format, which evalloom uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.http import Client, at_url, join_path, status_error
from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.answer_json import strip_fence
from evalloom.llms.echo import message_text
from evalloom.llms.openai import check_depth, count, decode, encode, error_text, shown

VERSION = "2023-06-01"
MAX_TOKENS = 4096
"""The API requires a limit in every request."""
_ANSWER = "give_answer"
"""The tool whose input is the answer, where an answer must follow a schema."""
_ONLY_JSON = "Answer with one JSON value and nothing else: no words before or after it, no code fence."
_BY_TOOL = f"Give your final answer by calling the tool {_ANSWER}."
_STOPS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


class Anthropic:
    """An llm behind `POST {base_url}/v1/messages`."""

    def __init__(
        self, client: Client, base_url: str, model: str, key: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        self._client = client
        self._url = join_path(base_url, "/v1/messages", replacing="/v1")
        self._model = model
        key_header = {"x-api-key": key} if key else {}
        self._headers = {"Content-Type": "application/json", "anthropic-version": VERSION, **key_header, **headers}

    async def __call__(self, request: Request) -> Response:
        """Send one message and return the answer."""
        body = encode(self._body(request))
        reply = await self._client.send("POST", self._url, body, self._headers)
        if reply.status != 200:
            raise status_error(reply, error_text(reply.body), self._url)
        try:
            return _response(decode(reply), reply.body, request)
        except CallError as error:
            raise at_url(error, self._url) from None

    def _body(self, request: Request) -> Record:
        params = _params(request.params)
        body: Record = {"model": self._model, "max_tokens": MAX_TOKENS + _thinking_budget(params), **params}
        body["messages"] = _messages(request.messages)
        system = [message_text(message) for message in request.messages if _is_system(message)]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.answer == "json":
            system.append(_ONLY_JSON)
        elif request.answer:
            body["tools"] = [*body.get("tools", []), {"name": _ANSWER, "input_schema": _object_schema(request.answer)}]
            body["tool_choice"] = _answer_choice(request, params)
            if body["tool_choice"]["type"] != "tool":
                system.append(_BY_TOOL)
        if system:
            body["system"] = "\n\n".join(system)
        return body


def _params(params: Record) -> Record:
    """Rename parameters as this API names them; others are sent unchanged, and the server may refuse them."""
    translated = dict(params)
    if "max_completion_tokens" in translated:
        translated["max_tokens"] = translated.pop("max_completion_tokens")
    if "stop" in translated:
        stop = translated.pop("stop")
        translated["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if (effort := translated.pop("reasoning_effort", None)) and effort != "none":
        # Here the lowest is `low`; what else the model knows (`xhigh`, `max`) is passed on.
        written = translated.get("output_config")
        effort = "low" if effort == "minimal" else effort
        translated["output_config"] = {"effort": effort, **(written if isinstance(written, dict) else {})}
    if "tool_choice" in translated:
        translated["tool_choice"] = _tool_choice(translated["tool_choice"])
    return translated


def _thinking_budget(params: Record) -> int:
    """Return the tokens for thinking, which count towards the limit of the answer."""
    thinking = params.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else 0
    return budget if isinstance(budget, int) and budget > 0 else 0


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return {"type": "any" if choice == "required" else choice}
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "tool", "name": choice["function"].get("name", "")}
    return choice


def _answer_choice(request: Request, params: Record) -> Record:
    """Force the answer, but not where the model may call other tools first or thinks, which the server refuses."""
    thinking = params.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") != "disabled":
        return {"type": "auto"}
    return {"type": "any"} if request.tools else {"type": "tool", "name": _ANSWER}


def _is_plain_object(schema: Record) -> bool:
    return schema.get("type") == "object"


def _object_schema(schema: Any) -> Record:
    """Return the schema of the tool's input, which must be an object; any other answer becomes a field of one."""
    if _is_plain_object(schema):
        return dict(schema)
    # References in a schema count from its root, so definitions move up with it.
    moved = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return {"type": "object", "properties": {"answer": schema}, "required": ["answer"], **moved}


def _tool(tool: Record) -> Record:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    described = {"description": function["description"]} if "description" in function else {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function.get("name", ""), **described, "input_schema": schema}


def _is_system(message: Record) -> bool:
    return message.get("role") in ("system", "developer")


def _messages(messages: list[Record]) -> list[Record]:
    """Return the turns of user and assistant; consecutive messages of one side, also tool results, are one turn."""
    turns: list[Record] = []
    for message in messages:
        if _is_system(message):
            continue
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Record) -> Iterator[Record]:
    """Return the content of a message as blocks."""
    if message.get("role") == "tool":
        result = {"tool_use_id": message.get("tool_call_id", ""), "content": message_text(message)}
        yield {"type": "tool_result", **result}
        return
    content = message.get("content")
    for part in content if isinstance(content, list) else [message_text(message)]:
        block = part if isinstance(part, dict) else {"type": "text", "text": str(part)}
        if block.get("type") == "image_url":
            yield _image(block.get("image_url"))
        elif block.get("type") != "text" or block.get("text"):  # the server refuses an empty text
            yield block
    for call in message.get("tool_calls") or []:
        yield _tool_use(call)


def _tool_use(call: Record) -> Record:
    function = call.get("function") or {}
    named = {"id": call.get("id", ""), "name": function.get("name", "")}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    else:
        arguments = arguments or {}
    return {"type": "tool_use", **named, "input": arguments}


def _image(image: Any) -> Record:
    url = str(image.get("url", "") if isinstance(image, dict) else image)
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, packed = url.removeprefix("data:").partition(",")
    return {"type": "image", "source": {"type": "base64", "media_type": kind.removesuffix(";base64"), "data": packed}}


def _response(answer: Any, body: bytes, request: Request) -> Response:
    blocks = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        if isinstance(answer, dict) and answer.get("error"):
            raise CallError("bad_answer", f"expected an answer, got an error: {error_text(body)}")
        raise CallError("bad_answer", f"expected a list of content blocks, got {shown(body)}")
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    if calls:
        check_depth(calls, body)
    answers = [call for call in calls if call.get("name") == _ANSWER and isinstance(request.answer, dict)]
    stop = answer.get("stop_reason")
    return Response(
        text=_forced_answer(answers[0].get("input"), request.answer) if answers else _text(blocks, request),
        tool_calls=[_tool_call(call) for call in calls if call not in answers],
        usage=_usage(answer.get("usage")),
        model=answer["model"] if isinstance(answer.get("model"), str) else "",
        stop="stop" if answers and stop == "tool_use" else _STOPS.get(str(stop), str(stop or "")),
    )


def _forced_answer(value: Any, schema: Any) -> str:
    """Return the answer that came as the input of a tool, as JSON."""
    is_wrapped = not _is_plain_object(schema) and isinstance(value, dict) and "answer" in value
    return encode(value["answer"] if is_wrapped else value).decode()


def _text(blocks: list[Record], request: Request) -> str:
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    text = "".join(text for text in texts if isinstance(text, str))
    if request.answer != "json":
        return text
    # Models put JSON in a fence even when asked not to.
    inner = strip_fence(text)
    return text if inner == text else inner.strip()


def _tool_call(block: Record) -> Record:
    arguments = encode(block.get("input") or {}).decode()
    function = {"name": str(block.get("name", "")), "arguments": arguments}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def _usage(reported: Any) -> Usage:
    if not isinstance(reported, dict):
        return Usage(calls=1)
    # Anthropic does not count tokens written to its cache, or read from it, as input_tokens.
    cached = count(reported.get("cache_read_input_tokens"))
    read = count(reported.get("input_tokens")) + count(reported.get("cache_creation_input_tokens")) + cached
    return Usage(read, count(reported.get("output_tokens")), calls=1, cached_input_tokens=cached)
