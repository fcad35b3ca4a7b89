"""OpenAI's Responses API, also of Azure, Groq, xAI, vLLM and LiteLLM; translated from and to the format of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.http import Client, at_url, join_path, status_error
from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.echo import message_text
from evalloom.llms.openai import check_depth, count, decode, encode, error_text, json_headers, shown

_STOPS = {"max_output_tokens": "length", "content_filter": "content_filter"}
# What chat completions have and this API does not: it would answer 400.
_NOT_HERE = ("n", "stop", "seed", "logit_bias", "presence_penalty", "frequency_penalty", "stream_options")


class Responses:
    """An llm behind `POST {base_url}/responses`. It does not stream, and stores nothing at the provider."""

    def __init__(
        self, client: Client, base_url: str, model: str, key: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        self._client = client
        self._url = join_path(base_url, "/responses")
        self._model = model
        self._headers = json_headers(key, headers)

    async def __call__(self, request: Request) -> Response:
        """Send one request and return the answer."""
        reply = await self._client.send("POST", self._url, encode(self._body(request)), self._headers)
        if reply.status != 200:
            raise status_error(reply, error_text(reply.body), self._url)
        try:
            return _response(decode(reply), reply.body)
        except CallError as error:
            raise at_url(error, self._url) from None

    def _body(self, request: Request) -> Record:
        system = [message_text(message) for message in request.messages if _is_system(message)]
        items = [item for message in request.messages if not _is_system(message) for item in _items(message)]
        body: Record = {"model": self._model, "input": items, "store": False, **_params(request.params)}
        # `instructions` of the settings come first, then the system messages of the prompt.
        if texts := [text for text in (body.get("instructions"), *system) if text]:
            body["instructions"] = "\n\n".join(texts)
        if tools := [*body.pop("tools", []), *request.tools]:
            body["tools"] = [_tool(tool) for tool in tools]
        answer_format: Record = {}
        if request.answer == "json":
            answer_format = {"type": "json_object"}
        elif request.answer:
            answer_format = {"type": "json_schema", "name": "answer", "schema": request.answer, "strict": True}
        if answer_format:
            body["text"] = {**body.get("text", {}), "format": answer_format}
        return body


def _params(params: Record) -> Record:
    """Rename parameters of a chat as this API names them; others are sent unchanged, and the server may refuse them."""
    translated = {name: value for name, value in params.items() if name not in _NOT_HERE}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in translated:
            translated.setdefault("max_output_tokens", translated[name])
            del translated[name]
    if "reasoning_effort" in translated:
        effort = translated.pop("reasoning_effort")
        translated["reasoning"] = {"effort": effort, **_object(translated.get("reasoning"))}
    text = _object(translated.get("text"))
    if "response_format" in translated:
        text = {"format": _format(translated.pop("response_format")), **text}
    if "verbosity" in translated:
        text = {"verbosity": translated.pop("verbosity"), **text}
    if text:
        translated["text"] = text
    if "tool_choice" in translated:
        translated["tool_choice"] = _flat(translated["tool_choice"])
    # Here the number says how many alternatives there are, and `include` asks for them.
    if translated.pop("logprobs", False):
        include = translated.get("include")
        translated["include"] = [*(include if isinstance(include, list) else []), "message.output_text.logprobs"]
    return translated


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _format(written: Any) -> Any:
    """Return `response_format` of a chat as `text.format`: the schema stands directly in it."""
    inner = written.get("json_schema") if isinstance(written, dict) else None
    return {"type": "json_schema", "name": "answer", **inner} if isinstance(inner, dict) else written


def _flat(choice: Any) -> Any:
    """Return a tool, or the choice of one, with the fields of its function directly in it."""
    function = choice.get("function") if isinstance(choice, dict) else None
    if not isinstance(function, dict):
        return choice
    return {**{name: value for name, value in choice.items() if name != "function"}, **function}


def _tool(tool: Record) -> Record:
    flat: Record = _flat(tool)
    if flat is tool:
        return tool
    # Strict is the default here, and off in a chat: a schema with optional fields would be refused.
    return {"strict": False, "parameters": {"type": "object", "properties": {}}, **flat}


def _is_system(message: Record) -> bool:
    return message.get("role") in ("system", "developer")


def _items(message: Record) -> Iterator[Record]:
    """Return the items of one message: its content, the calls in it, or the result of a call."""
    if message.get("role") == "tool":
        yield {
            "type": "function_call_output",
            "call_id": str(message.get("tool_call_id", "")),
            "output": message_text(message),
        }
        return
    is_answer = message.get("role") == "assistant"
    content = message.get("content")
    if isinstance(content, list) and not is_answer:
        yield {"role": "user", "content": [_part(part) for part in content]}
    elif text := message_text(message):
        yield {"role": "assistant" if is_answer else "user", "content": text}
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        arguments = function.get("arguments") or "{}"
        yield {
            "type": "function_call",
            "call_id": str(call.get("id", "")),
            "name": str(function.get("name", "")),
            "arguments": arguments if isinstance(arguments, str) else encode(arguments).decode(),
        }


def _part(part: Any) -> Record:
    """Return one part of a message: a text or an image; others are sent unchanged."""
    if not isinstance(part, dict):
        return {"type": "input_text", "text": str(part)}
    if part.get("type") == "text":
        return {"type": "input_text", "text": str(part.get("text", ""))}
    if part.get("type") == "image_url":
        image = part.get("image_url")
        fields = image if isinstance(image, dict) else {"url": image}
        return {"type": "input_image", "image_url": fields.get("url"), "detail": fields.get("detail") or "auto"}
    return dict(part)


def _response(answer: Any, body: bytes) -> Response:
    output = answer.get("output") if isinstance(answer, dict) else None
    is_list = isinstance(output, list) and all(isinstance(item, dict) for item in output)
    if isinstance(answer, dict) and (answer.get("error") or answer.get("status") == "failed"):
        raise CallError("bad_answer", f"expected an answer, got an error: {error_text(body)}")
    if not isinstance(answer, dict) or not isinstance(output, list) or not is_list:
        raise CallError("bad_answer", f"expected a list of output items, got {shown(body)}")
    calls = [item for item in output if item.get("type") == "function_call"]
    if calls:
        check_depth(calls, body)
    parts = [part for item in output if item.get("type") == "message" for part in _list(item.get("content"))]
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "output_text"]
    refusals = [part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal"]
    text = "".join(text for text in texts if isinstance(text, str))
    refusal = "".join(refusal for refusal in refusals if isinstance(refusal, str))
    return Response(
        text=text or refusal,
        tool_calls=[_tool_call(call) for call in calls],
        usage=_usage(answer.get("usage")),
        model=answer["model"] if isinstance(answer.get("model"), str) else "",
        stop="refusal" if refusal and not text else _stop(answer, bool(calls)),
        logprobs=[token for part in parts if isinstance(part, dict) for token in _objects(part.get("logprobs"))],
    )


def _stop(answer: Record, has_calls: bool) -> str:
    """Return why the answer ended, in the words of a chat."""
    if answer.get("status") == "incomplete":
        reason = str(_object(answer.get("incomplete_details")).get("reason") or "")
        return _STOPS.get(reason, reason or "length")
    return "tool_calls" if has_calls else "stop"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[Record]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _tool_call(item: Record) -> Record:
    arguments = item.get("arguments")
    function = {"name": str(item.get("name", "")), "arguments": arguments if isinstance(arguments, str) else "{}"}
    return {"id": str(item.get("call_id") or item.get("id") or ""), "type": "function", "function": function}


def _usage(reported: Any) -> Usage:
    if not isinstance(reported, dict):
        return Usage(calls=1)
    read = count(reported.get("input_tokens"))
    cached = min(read, count(_object(reported.get("input_tokens_details")).get("cached_tokens")))
    return Usage(read, count(reported.get("output_tokens")), calls=1, cached_input_tokens=cached)
