"""OpenAI's chat completions protocol, also of DeepSeek, Kimi, Qwen, Doubao, vLLM, SGLang, Ollama and llama.cpp."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from evalloom.core.errors import CallError
from evalloom.core.http import Client, Reply, at_url, join_path, status_error
from evalloom.core.model import Llm, Record, Request, Response, Usage
from evalloom.core.text import quote

_SHOWN = 200
"""How much of a body a message quotes."""
_DEEPEST = 250
"""Levels of a tool call: what reads and writes it later would end in a RecursionError at about a thousand."""


class OpenAi:
    """An llm behind `POST {base_url}/chat/completions`."""

    def __init__(
        self,
        client: Client,
        base_url: str,
        model: str,
        key: str = "",
        headers: Mapping[str, str] = {},
        stream: bool = False,
    ) -> None:
        self._client = client
        self._url = join_path(base_url, "/chat/completions")
        self._model = model
        self._headers = json_headers(key, headers)
        self._stream = stream

    async def __call__(self, request: Request) -> Response:
        """Return one completion."""
        reply = await self._client.send("POST", self._url, encode(self._body(request)), self._headers)
        if reply.status != 200:
            raise status_error(reply, error_text(reply.body), self._url)
        # Some servers do not stream although they are asked to.
        is_stream = self._stream and not reply.body.lstrip().startswith(b"{")
        try:
            answer = _join_stream(reply.body) if is_stream else decode(reply)
            return _response(answer, reply.body)
        except CallError as error:
            raise at_url(error, self._url) from None

    def _body(self, request: Request) -> Record:
        body: Record = {"model": self._model, "messages": request.messages, **request.params}
        if request.tools:
            body["tools"] = request.tools
        if request.answer == "json":
            body["response_format"] = {"type": "json_object"}
        elif request.answer:
            schema = {"name": "answer", "schema": request.answer, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body


class OpenAiEmbeddings:
    """Vectors from `POST {base_url}/embeddings`.

    It is called like an llm, so that retries, cache and limits can wrap it: a message per text, the vectors as JSON.
    `Embedding` decodes them.
    """

    def __init__(
        self, client: Client, base_url: str, model: str, key: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        self._client = client
        self._url = join_path(base_url, "/embeddings")
        self._model = model
        self._headers = json_headers(key, headers)

    async def __call__(self, request: Request) -> Response:
        """Return one vector per message, in the order of the messages, as JSON."""
        texts = [message["content"] for message in request.messages]
        body = encode({"model": self._model, "input": texts})
        reply = await self._client.send("POST", self._url, body, self._headers)
        if reply.status != 200:
            raise status_error(reply, error_text(reply.body), self._url)
        try:
            answer = decode(reply)
            vectors = _vectors(answer, len(texts), reply.body)
        except CallError as error:
            raise at_url(error, self._url) from None
        return Response(encode(vectors).decode(), usage=_usage(answer.get("usage")))


class Embedding:
    """Embeds texts through an object that is called like an llm. Recordings recognize such requests by their role."""

    def __init__(self, llm: Llm) -> None:
        self._llm = llm

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text, in the order of the texts."""
        response = await self._llm(Request([{"role": "embed", "content": text} for text in texts]))
        vectors: list[list[float]] = _decoded(response.text.encode())
        return vectors


def json_headers(key: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a JSON request, with the key if there is one."""
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    return {"Content-Type": "application/json", **authorization, **more}


def encode(body: Any) -> bytes:
    """Encode a body as JSON; json encodes what orjson refuses (a lone surrogate, a very large integer)."""
    try:
        return orjson.dumps(body)
    except (TypeError, ValueError):
        return json.dumps(body).encode()


def decode(reply: Reply) -> Any:
    """Decode the JSON of a body. Raises CallError if it is not JSON."""
    try:
        return orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return _well_formed(_decoded(reply.body))


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)  # knows lone surrogates and NaN, which some servers write
    except (ValueError, RecursionError):
        raise CallError("bad_answer", f"expected JSON, got {shown(body)}") from None


def _well_formed(value: Any) -> Any:
    """Replace each lone surrogate, which a model may write and which is not valid Unicode, by U+FFFD."""
    try:
        orjson.dumps(value)
        return value
    except (TypeError, ValueError):
        pass
    try:
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except RecursionError:
        raise CallError("bad_answer", f"expected JSON of at most {_DEEPEST} levels, got more") from None


def check_depth(value: Any, body: bytes) -> None:
    """Raise CallError for a value that is nested so deeply that it cannot be written to a log."""
    try:
        orjson.dumps(value)  # refuses more than 254 levels, but also integers of more than 64 bits
        return
    except (TypeError, ValueError):
        level = [value]
    for _ in range(_DEEPEST):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [inner for part in parts for inner in part]
    if level:
        raise CallError("bad_answer", f"expected tool calls of at most {_DEEPEST} levels, got {shown(body)}")


def error_text(body: bytes) -> str:
    """Return the error message of a server from one of its usual places."""
    try:
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        return shown(body) if body else ""
    for name in ("error", "message", "detail"):
        if isinstance(error, dict) and name in error:
            error = error[name]
    return error[:_SHOWN] if isinstance(error, str) else shown(body)


def shown(body: bytes) -> str:
    """Return the start of a body for a message."""
    return quote(body[: 4 * _SHOWN].decode("utf-8", "replace"), _SHOWN) if body else "an empty body"


def _response(answer: Any, body: bytes) -> Response:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        if isinstance(answer, dict) and answer.get("error"):
            raise CallError("bad_answer", f"expected an answer, got an error: {error_text(body)}")
        raise CallError("bad_answer", f"expected choices[0].message, got {shown(body)}")
    calls = message.get("tool_calls")
    if calls:
        check_depth(calls, body)
    stop = choice["finish_reason"] if isinstance(choice.get("finish_reason"), str) else ""
    if stop == "stop" and message.get("refusal") and not message.get("content"):
        stop = "refusal"
    return Response(
        text=_text(message, body),
        tool_calls=[call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else [],
        usage=_usage(answer.get("usage")),
        model=answer["model"] if isinstance(answer.get("model"), str) else "",
        stop=stop,
        logprobs=token_logprobs(choice.get("logprobs")),
    )


def token_logprobs(reported: Any) -> list[Record]:
    """Return the log probabilities of an answer, one for each token; none where the server sent none."""
    tokens = reported.get("content") if isinstance(reported, dict) else None
    return [token for token in tokens if isinstance(token, dict)] if isinstance(tokens, list) else []


def _vectors(answer: Any, count: int, body: bytes) -> list[list[float]]:
    """Return the vectors of an answer, one for each text."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    vectors: list[Any] = (
        [row.get("embedding") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    try:
        msgspec.convert(vectors, list[list[float]])
        if len(vectors) == count and all(math.isfinite(sum(vector)) for vector in vectors):
            return vectors
    except (msgspec.ValidationError, OverflowError):
        pass
    if isinstance(answer, dict) and answer.get("error"):
        raise CallError("bad_answer", f"expected {count} embeddings, got an error: {error_text(body)}")
    raise CallError("bad_answer", f"expected {count} embeddings, got {shown(body)}")


def _text(message: Record, body: bytes) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    raise CallError("bad_answer", f"expected a text in choices[0].message.content, got {shown(body)}")


def _usage(reported: Any) -> Usage:
    if not isinstance(reported, dict):
        return Usage(calls=1)
    details = reported.get("prompt_tokens_details")
    prompt_tokens = count(reported.get("prompt_tokens"))
    cached = min(prompt_tokens, count(details.get("cached_tokens"))) if isinstance(details, dict) else 0
    return Usage(prompt_tokens, count(reported.get("completion_tokens")), calls=1, cached_input_tokens=cached)


def count(value: Any) -> int:
    """Return a number of tokens as a server wrote it; 0 if it wrote something else."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**53 else 0


def _join_stream(body: bytes) -> Record:
    """Join the pieces of a streamed answer."""
    text: list[str] = []
    calls: dict[int, Record] = {}
    answer: Record = {"choices": [{"message": {}}]}
    for event, data in _events(body):
        if event.get("error"):
            raise CallError("bad_answer", f"expected an answer, got an error: {error_text(data)}")
        answer |= {name: event[name] for name in ("model", "usage") if event.get(name)}
        try:
            for choice in event.get("choices") or []:
                if choice.get("index"):
                    continue  # with `n` above 1 there are more answers, of which the first counts
                delta = choice.get("delta") or {}
                text.append(_text(delta, body))
                _add_calls(calls, delta.get("tool_calls") or [])
                if choice.get("finish_reason"):
                    answer["choices"][0]["finish_reason"] = choice["finish_reason"]
        except (AttributeError, TypeError):
            raise CallError("bad_answer", f"expected pieces of an answer, got {shown(data)}") from None
    if not answer["choices"][0].get("finish_reason"):
        raise CallError("bad_answer", f"the stream ended before the answer did: {shown(body)}", is_transient=True)
    # Only now: two pieces may split a surrogate pair, such as that of an emoji.
    answer["choices"][0]["message"] = {"content": "".join(text), "tool_calls": list(calls.values())}
    joined: Record = _well_formed(answer)
    return joined


def _events(body: bytes) -> Iterator[tuple[Record, bytes]]:
    """Return each event of a stream, decoded and as it was sent."""
    for line in body.splitlines():
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            event = _decoded(data)
            if isinstance(event, dict):
                yield event, data


def _add_calls(calls: dict[int, Record], pieces: list[Record]) -> None:
    """Add the pieces of tool calls: the name comes first, then the arguments in parts."""
    for piece in pieces:
        call = calls.setdefault(piece.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}})
        if piece.get("id"):
            call["id"] = piece["id"]
        for name, bit in (piece.get("function") or {}).items():
            call["function"][name] = call["function"].get(name, "") + (bit or "")
