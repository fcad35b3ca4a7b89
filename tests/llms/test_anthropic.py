"""The messages API, against a real server that speaks it well and badly."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from evalloom.core.errors import CallError
from evalloom.core.http import Client
from evalloom.core.model import Record, Request, Response, Usage
from evalloom.llms.anthropic import Anthropic
from evalloom.llms.retry import Retry

SEARCH = {"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}}


def send(url: str, request: Request, model: str = "claude", timeout_s: float = 30, **more: Any) -> Response:
    async def run() -> Response:
        client = Client(timeout_s, secret="sk-ant-0123456789")
        try:
            return await Retry(Anthropic(client, url, model, "sk-ant-0123456789", **more), retries=0)(request)
        finally:
            await client.close()

    return asyncio.run(run())


def ask(text: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": text}], **more)


def sent(url: str, request: Request, **more: Any) -> Record:
    """What the server was sent: path, headers, body."""
    found: Record = json.loads(send(url, request, "mirror", **more).text)
    return found


def test_an_answer_has_text_usage_model_and_stop(llm_server: Any) -> None:
    response = send(llm_server.url, ask("say: 你好"))
    assert response == Response("你好", usage=Usage(1, 12, calls=1), model="claude", stop="stop")


def test_a_request_is_as_the_api_wants_it(llm_server: Any) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    request = Request(messages, {"temperature": 0, "stop": "END", "max_completion_tokens": 9})
    found = sent(llm_server.url + "/v1/", request, headers={"anthropic-beta": "x"})
    assert found["path"] == "/messages"
    headers = [found["headers"][name] for name in ("x-api-key", "anthropic-version", "anthropic-beta")]
    assert headers == ["sk-ant-0123456789", "2023-06-01", "x"]
    assert found["body"] == {
        "model": "mirror",
        "max_tokens": 9,
        "temperature": 0,
        "stop_sequences": ["END"],
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }


def test_parameters_go_along_and_there_is_always_a_limit(llm_server: Any) -> None:
    body = sent(llm_server.url, ask("hello", params={"top_p": 1, "top_k": 4}))["body"]
    assert (body["top_p"], body["top_k"], body["max_tokens"]) == (1, 4, 4096)


def test_tokens_that_the_provider_had_in_its_cache_are_told(llm_server: Any) -> None:
    assert send(llm_server.url, ask("[[prompt-cache]]" + "x" * 24)).usage == Usage(
        10, 12, calls=1, cached_input_tokens=8
    )


def test_tools_and_their_results_are_translated(llm_server: Any) -> None:
    calls = [{"id": name, "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}} for name in "ab"]
    messages: list[Record] = [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "found"},
        {"role": "tool", "tool_call_id": "b", "content": "lost"},
    ]
    body = sent(llm_server.url, Request(messages, {"tool_choice": "required"}, tools=[SEARCH]))["body"]
    assert body["tools"] == [{"name": "search", "description": "Finds.", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "any"}
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][0] == {"type": "tool_use", "id": "a", "name": "search", "input": {"q": 1}}
    assert body["messages"][2]["content"][1] == {"type": "tool_result", "tool_use_id": "b", "content": "lost"}


def test_a_tool_call_comes_back_in_the_shape_of_openai(llm_server: Any) -> None:
    response = send(llm_server.url, ask('call: search {"q": "x"}', tools=[SEARCH]))
    function = {"name": "search", "arguments": '{"q":"x"}'}
    assert response.tool_calls == [{"id": "toolu_1", "type": "function", "function": function}]
    assert (response.text, response.stop) == ("", "tool_calls")


def test_pictures_are_translated(llm_server: Any) -> None:
    urls = ["https://example.org/a.png", "data:image/png;base64,AAAA"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = sent(llm_server.url, Request([{"role": "user", "content": parts}]))["body"]
    assert [part["source"] for part in body["messages"][0]["content"]] == [
        {"type": "url", "url": urls[0]},
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    ]


def test_an_answer_by_schema_is_the_input_of_a_forced_tool(llm_server: Any) -> None:
    response = send(llm_server.url, ask('say: {"score": 3}', answer=SCHEMA))
    assert (response.text, response.tool_calls, response.stop) == ('{"score":3}', [], "stop")
    wrapped = send(llm_server.url, ask('say: {"answer": [1]}', answer={"type": "array"}))
    assert wrapped.text == "[1]"


def test_a_schema_beside_tools_or_thinking_is_not_forced(llm_server: Any) -> None:
    body = sent(llm_server.url, ask("hello", answer=SCHEMA, tools=[SEARCH]))["body"]
    assert body["tool_choice"] == {"type": "any"} and len(body["tools"]) == 2
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert sent(llm_server.url, ask("hello", answer=SCHEMA, params=thinking))["body"]["tool_choice"] == {"type": "auto"}


def test_json_is_asked_for_in_words_and_taken_out_of_its_fence(llm_server: Any) -> None:
    assert "JSON" in sent(llm_server.url, ask("hello", answer="json"))["body"]["system"]
    assert send(llm_server.url, ask('say: ```json\n{"a": 1}\n```', answer="json")).text == '{"a": 1}'
    assert send(llm_server.url, ask("say: ```\nx\n```")).text == "```\nx\n```"


@pytest.mark.parametrize(
    ("model", "code", "is_transient", "said"),
    [
        ("status-400", "http_400", False, "HTTP 400: the server says 400"),
        ("status-429", "http_429", True, "the server says 429"),
        ("status-529", "http_529", True, "the server says 529"),
        ("drop", "connection_broke", True, "broke"),
        ("cut", "connection_broke", True, "broke"),
        ("not-http", "bad_answer", False, "expected an answer in HTTP"),
        ("garbage", "bad_answer", False, "expected JSON, got"),
        ("html", "bad_answer", False, "Bad Gateway"),
        ("empty", "bad_answer", False, "got an empty body"),
        ("wrong-json", "bad_answer", False, "expected a list of content blocks, got"),
        ("no-json-object", "bad_answer", False, "expected a list of content blocks, got"),
        ("error-200", "bad_answer", False, "got an error: something broke inside"),
        ("huge", "answer_too_large", False, "at most 16 MiB"),
    ],
)
def test_a_bad_answer_is_an_error_that_says_what_came(
    llm_server: Any, model: str, code: str, is_transient: bool, said: str
) -> None:
    with pytest.raises(CallError) as raised:
        send(llm_server.url, ask("hello"), model)
    assert (raised.value.code, raised.value.is_transient) == (code, is_transient)
    assert said in raised.value.message and len(raised.value.message) < 400


def test_a_server_that_hangs_is_given_up(llm_server: Any) -> None:
    with pytest.raises(CallError, match=r"no answer within 0\.2 s \(.*/v1/messages\) \[timeout\]"):
        send(llm_server.url, ask("hello"), "hang", timeout_s=0.2)


def test_the_key_is_in_no_message(llm_server: Any) -> None:
    with pytest.raises(CallError, match=r"HTTP 401: Incorrect API key provided: \[hidden\]") as raised:
        send(llm_server.url, ask("hello"), "echo-key")
    assert "sk-ant-0123456789" not in str(raised.value)


def test_retries_get_over_what_passes(llm_server: Any) -> None:
    async def run() -> Response:
        client = Client()
        try:
            return await Retry(Anthropic(client, llm_server.url, "limited-2"), retries=2)(ask("over and over"))
        finally:
            await client.close()

    response = asyncio.run(run())
    assert response.text.startswith("ANS-") and response.usage.retries == 2
    assert llm_server.log()["over and over"] == 3
