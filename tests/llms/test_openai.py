"""Chat completions as OpenAI speaks them, against a real server that speaks them well and badly."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.http import Client
from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.openai import Embedding, OpenAi, OpenAiEmbeddings, encode

SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
KEY = "sk-0123456789abcdef"


def send(url: str, request: Request, model: str = "gpt", timeout_s: float = 30, **more: Any) -> Response:
    async def run() -> Response:
        client = Client(timeout_s, secret=KEY)
        try:
            return await OpenAi(client, url, model, KEY, **more)(request)
        finally:
            await client.close()

    return asyncio.run(run())


def ask(text: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": text}], **more)


def sent(url: str, request: Request, **more: Any) -> Record:
    """What the server was sent: path, headers, body."""
    found: Record = json.loads(send(url, request, "mirror", **more).text)
    return found


def answered(body: bytes, status: str = "200 OK", stream: bool = False) -> Response:
    """What a response with this body is taken for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async def run() -> Response:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = Client(10)
        try:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await OpenAi(client, url, "m", stream=stream)(Request([]))
        finally:
            await client.close()
            server.close()

    return asyncio.run(run())


def message(content: Any, **more: Any) -> bytes:
    return orjson.dumps({"choices": [{"message": {"content": content, **more}, "finish_reason": "stop"}]})


def fault_of(body: bytes, status: str = "200 OK", stream: bool = False) -> CallError:
    with pytest.raises(CallError) as caught:
        answered(body, status, stream)
    return caught.value


def test_an_answer_has_text_usage_model_and_stop(llm_server: Any) -> None:
    response = send(llm_server.url, ask("say: 你好"))
    assert response == Response("你好", usage=Usage(1, 12, calls=1), model="gpt", stop="stop")


def test_a_request_is_as_the_api_wants_it(llm_server: Any) -> None:
    request = Request([{"role": "system", "content": "be brief"}], {"temperature": 0, "seed": 7}, tools=[SEARCH])
    found = sent(llm_server.url + "/v1/", request, headers={"x-team": "eval"})
    assert found["path"] == "/chat/completions"
    assert [found["headers"][name] for name in ("authorization", "x-team")] == [f"Bearer {KEY}", "eval"]
    assert found["body"] == {
        "model": "mirror",
        "messages": request.messages,
        "temperature": 0,
        "seed": 7,
        "tools": [SEARCH],
    }


def test_json_and_schemas_are_asked_for(llm_server: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert sent(llm_server.url, ask("x", answer="json"))["body"]["response_format"] == {"type": "json_object"}
    asked = sent(llm_server.url, ask("x", answer=schema))["body"]["response_format"]
    assert asked["json_schema"]["schema"] == schema and asked["type"] == "json_schema"


def test_what_few_json_writers_know_is_sent_all_the_same(llm_server: Any) -> None:
    assert sent(llm_server.url, ask("x", params={"seed": 2**70}))["body"]["seed"] == 2**70
    assert json.loads(encode({"content": "\ud800"})) == {"content": "\ud800"}


def test_tool_calls_come_back(llm_server: Any) -> None:
    response = send(llm_server.url, ask('call: search {"q": 1}', tools=[SEARCH]))
    assert (response.text, response.stop) == ("", "tool_calls")
    assert response.tool_calls[0]["function"] == {"name": "search", "arguments": '{"q": 1}'}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (message("hi"), "hi"),
        (message(None), ""),
        (message(None, refusal="I will not"), "I will not"),
        (message([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]), "ab"),
        (b'{"choices":[{"message":{"content":"\\ud83d"}}],"x":NaN}', "\ufffd"),
        (b'{"choices":[{"message":{}}],"usage":{"prompt_tokens":-1,"completion_tokens":"x"},"model":5}', ""),
    ],
)
def test_the_text_is_found_in_every_usual_shape(body: bytes, text: str) -> None:
    response = answered(body)
    assert (response.text, response.model, response.usage) == (text, "", Usage(calls=1))


@pytest.mark.parametrize("mode", ["garbage", "html", "wrong-json", "no-json-object", "empty", "error-200", "not-http"])
def test_a_bad_answer_is_told_and_not_tried_again(llm_server: Any, mode: str) -> None:
    with pytest.raises(CallError) as caught:
        send(llm_server.url, ask("hello"), mode)
    assert (caught.value.code, caught.value.is_transient) == ("bad_answer", False)
    assert "expected" in caught.value.message


@pytest.mark.parametrize(
    ("mode", "code", "is_transient"),
    [
        ("drop", "connection_broke", True),
        ("cut", "connection_broke", True),
        ("huge", "answer_too_large", False),
        ("status-429", "http_429", True),
        ("status-503", "http_503", True),
        ("status-400", "http_400", False),
        ("status-302", "http_302", False),
    ],
)
def test_a_failed_call_says_whether_it_can_heal(llm_server: Any, mode: str, code: str, is_transient: bool) -> None:
    with pytest.raises(CallError) as caught:
        send(llm_server.url, ask("hello"), mode)
    assert (caught.value.code, caught.value.is_transient) == (code, is_transient)


def test_a_server_that_hangs_is_given_up(llm_server: Any) -> None:
    with pytest.raises(CallError, match=r"no answer within 0.1 s"):
        send(llm_server.url, ask("hello"), "hang", timeout_s=0.1)


def test_a_key_that_the_server_repeats_is_hidden(llm_server: Any) -> None:
    with pytest.raises(CallError, match=r"HTTP 401: Incorrect API key provided: \[hidden\]"):
        send(llm_server.url, ask("hello"), "echo-key")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too many", "code": 5}}', "HTTP 429: too many"),
        (b'{"error": "too many"}', "HTTP 429: too many"),
        (b'{"message": "too many"}', "HTTP 429: too many"),
        (b'{"detail": "too many"}', "HTTP 429: too many"),
        (b'{"error": {"code": 5}}', """HTTP 429: '{"error": {"code": 5}}'"""),
        (b'{"detail": [{"msg": "x"}]}', """HTTP 429: '{"detail": [{"msg": "x"}]}'"""),
        (b"<html>slow down</html>", "HTTP 429: '<html>slow down</html>'"),
        (b"", "HTTP 429"),
    ],
)
def test_what_a_server_says_about_an_error_is_found(body: bytes, said: str) -> None:
    message = fault_of(body, "429 Too Many").message
    assert message.startswith(f"{said} (http://127.0.0.1:") and message.endswith("/chat/completions)")


def test_a_long_complaint_is_cut() -> None:
    assert len(fault_of(b"x" * 10_000, "500 Oh").message) < 300
    assert len(fault_of(orjson.dumps({"error": "y" * 10_000}), "500 Oh").message) < 300


def events(*pieces: Any, done: bool = True) -> bytes:
    lines = [b"data: " + (piece if isinstance(piece, bytes) else orjson.dumps(piece)) for piece in pieces]
    return b"\n\n".join([*lines, b"data: [DONE]", b""] if done else lines)


def delta(_stop: str | None = None, _index: int = 0, **fields: Any) -> Record:
    return {"choices": [{"index": _index, "delta": fields, "finish_reason": _stop}]}


def test_a_stream_is_joined(llm_server: Any) -> None:
    response = send(llm_server.url, ask("say: in two pieces"), stream=True)
    assert response == Response("in two pieces", usage=Usage(4, 12, calls=1), model="gpt", stop="stop")


def test_streamed_tool_calls_are_joined() -> None:
    first = {"index": 0, "id": "c1", "function": {"name": "search", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": bit}} for bit in ('{"q"', ": 1}")]
    other = {"index": 1, "id": "c2", "function": {"name": "stop", "arguments": "{}"}}
    calls = [delta(tool_calls=[one]) for one in (first, *pieces, other)]
    response = answered(events(*calls, delta("tool_calls")), stream=True)
    assert [call["function"]["arguments"] for call in response.tool_calls] == ['{"q": 1}', "{}"]
    assert [call["id"] for call in response.tool_calls] == ["c1", "c2"]


def test_a_streamed_refusal_is_the_text() -> None:
    assert answered(events(delta(refusal="I will "), delta("stop", refusal="not")), stream=True).text == "I will not"


def test_of_several_streamed_answers_the_first_counts() -> None:
    body = events(delta(content="a"), delta(_index=1, content="B"), delta("stop", content="c"))
    assert answered(body, stream=True).text == "ac"


def test_a_character_that_was_parted_in_the_stream_is_whole_again() -> None:
    halves = [b'{"choices":[{"delta":{"content":"%s"}}]}' % half for half in (rb"\ud83d", rb"\ude00")]
    assert answered(events(*halves, delta("stop")), stream=True).text == "😀"
    assert answered(events(halves[0], delta("stop")), stream=True).text == "\ufffd"


def test_half_a_character_in_the_model_of_a_stream_is_replaced() -> None:
    piece = rb'{"model":"m\ud800","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'
    assert answered(events(piece), stream=True).model == "m\ufffd"


@pytest.mark.parametrize("depth", [300, 960, 990, 1000, 1010])
@pytest.mark.parametrize("model", ["m", "\ud800"])
def test_tool_calls_that_are_nested_too_deeply_are_a_bad_answer(depth: int, model: str) -> None:
    deep = "[" * depth + "]" * depth
    body = message("x", tool_calls=[{"a": "DEEP"}]).decode().replace('"DEEP"', deep)
    fault = fault_of(body.replace("{", f'{{"model":{json.dumps(model)},', 1).encode())
    assert fault.code == "bad_answer" and ("250 levels" in fault.message or "expected JSON" in fault.message)
    inside = fault_of(b'data: {"error": %s}\n\n' % deep.encode(), stream=True)
    assert inside.message.startswith("expected an answer, got an error: ")


def test_what_is_wrong_with_an_answer_names_the_server() -> None:
    for body in (b"<html>", b"{}", b'{"error": "no"}', b"[" * 9):
        assert "/chat/completions)" in fault_of(body).message


def test_a_server_that_does_not_stream_is_understood() -> None:
    assert answered(message("whole"), stream=True).text == "whole"
    fault = fault_of(b'{"error": {"message": "no streams here"}}', stream=True)
    assert fault.message.startswith("expected an answer, got an error: no streams here (http://127.0.0.1:")


@pytest.mark.parametrize("body", [events(delta(content="a"), done=False), b"", b": ping\n\n"])
def test_a_stream_that_ends_too_early_can_be_tried_again(body: bytes) -> None:
    fault = fault_of(body, stream=True)
    assert (fault.code, fault.is_transient) == ("bad_answer", True)


@pytest.mark.parametrize("piece", [{"error": {"message": "overloaded"}}, b"{", {"choices": 5}, {"choices": ["x"]}])
def test_an_error_inside_a_stream_is_told(piece: Any) -> None:
    fault = fault_of(events(delta(content="a"), piece, delta("stop")), stream=True)
    assert (fault.code, fault.is_transient) == ("bad_answer", False)


NAMES = st.sampled_from(["choices", "message", "delta", "content", "tool_calls", "usage", "error", "index", "function"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
ANSWERS = JSON | st.builds(lambda one, more: {"choices": [one], **more}, JSON, st.dictionaries(NAMES, JSON))


@given(ANSWERS, st.booleans())
def test_any_json_is_an_answer_or_a_call_error(value: Any, stream: bool) -> None:
    body = orjson.dumps(value)
    body = b"data: " + body + b"\n\n" + events(delta("stop")) if stream else body
    try:
        assert isinstance(answered(body, stream=stream), Response)
    except CallError as fault:
        assert fault.code == "bad_answer"


def test_tokens_that_the_provider_had_in_its_cache_are_told(llm_server: Any) -> None:
    usage = send(llm_server.url, ask("[[prompt-cache]]" + "x" * 24)).usage
    assert usage == Usage(10, 12, calls=1, cached_input_tokens=8)


def embed(url: str, texts: list[str], model: str = "e") -> list[list[float]]:
    async def run() -> list[list[float]]:
        client = Client(10)
        try:
            return await Embedding(OpenAiEmbeddings(client, url, model, KEY))(texts)
        finally:
            await client.close()

    return asyncio.run(run())


def test_embeddings_come_in_the_order_of_the_texts(llm_server: Any) -> None:
    one, two = embed(llm_server.url, ["aab", "ccc"])
    assert [embed(llm_server.url, [text])[0] for text in ("aab", "ccc")] == [one, two]
    assert one != two


@pytest.mark.parametrize("mode", ["wrong-json", "no-json-object", "garbage", "error-200"])
def test_bad_embeddings_are_told(llm_server: Any, mode: str) -> None:
    with pytest.raises(CallError) as caught:
        embed(llm_server.url, ["a"], mode)
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize("vector", ["[null]", '["0.5"]', "[[0.5]]", "[NaN]", "[1e400]", "[true]", '{"a": 1}'])
def test_embeddings_that_are_no_numbers_are_a_bad_answer(vector: str) -> None:
    body = f'{{"data": [{{"embedding": {vector}}}]}}'.encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def run() -> None:
        client = Client(10)
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                await OpenAiEmbeddings(client, url, "e")(ask("a"))
            finally:
                await client.close()

    with pytest.raises(
        CallError, match=r"expected 1 embeddings, got .* \(http://.*/embeddings\)|expected JSON"
    ) as caught:
        asyncio.run(run())
    assert caught.value.code == "bad_answer"
