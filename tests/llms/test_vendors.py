"""Each protocol against a server that checks requests as strictly as the vendors, and the limits of models."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Request, Response
from evalloom.llms import LlmOptions, Llms
from evalloom.settings import LlmSettings, Settings, resolve, with_llms
from evalloom.settings.file import ProviderSection

pytestmark = pytest.mark.req("WORK-32")
KEY = "test-key-1234567890"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


class VendorServer:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def last(self) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/requests", timeout=10) as reply:
            seen: list[dict[str, Any]] = json.load(reply)
        return seen[-1]


@pytest.fixture(scope="module")
def vendor() -> Iterator[VendorServer]:
    script = Path(__file__).with_name("vendor_server.py")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield VendorServer(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: VendorServer) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{vendor.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", vendor.url)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", vendor.url)
    monkeypatch.setenv("MISTRAL_API_BASE_URL", f"{vendor.url}/mistral/v1")
    monkeypatch.setenv("DEEPSEEK_BASE_URL", f"{vendor.url}/v1")


def ask(name: str, request: Request | str, warnings: list[str] | None = None, **overrides: Any) -> Response:
    if isinstance(request, str):
        request = Request([{"role": "user", "content": request}])

    async def run() -> Response:
        settings = Settings()
        settings = with_llms(settings, [resolve(settings, name, {"retries": 0, **overrides}, label="one")])
        llms = Llms(settings, LlmOptions(use_cache=False), (warnings if warnings is not None else []).append)
        try:
            return await llms.get("one")(request)
        finally:
            await llms.close()

    return asyncio.run(run())


NAMES = [
    "openai:gpt-4o",
    "openai:chat:gpt-4o",
    "openai:responses:gpt-4o",
    "anthropic:messages:claude-x",
    "anthropic/claude-x",
    "azure:chat:my-gpt",
    "azure:responses:my-gpt",
    "mistral:mistral-small",
    "deepseek/deepseek-chat",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_with_tools_images_and_a_schema(name: str, vendor: VendorServer) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    call = {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
        {"role": "user", "content": "hello"},
    ]
    params = {"temperature": 0.5, "max_tokens": 99, "top_p": 0.9}
    answer = ask(name, Request(messages, tools=[WEATHER], params=params))
    assert answer.text == "echo: hello" and answer.stop == "stop" and answer.usage.input_tokens == 10
    assert ask(name, Request(messages[-1:], answer="json")).text
    asked = Request(messages[-1:], answer=SCHEMA)
    assert ask(name, asked).stop == "stop"


@pytest.mark.parametrize("name", NAMES)
def test_tool_calls_refusals_and_limits_are_named_alike(name: str) -> None:
    answer = ask(name, Request([{"role": "user", "content": "call"}], tools=[WEATHER]))
    assert answer.stop == "tool_calls" and answer.tool_calls[0]["function"]["name"] == "weather"
    assert json.loads(answer.tool_calls[0]["function"]["arguments"]) == {"city": "Berlin"}
    assert ask(name, "long").stop == "length"
    refused = ask(name, "refuse")
    assert refused.stop == "refusal" and refused.text


def test_a_response_is_asked_for_in_the_words_of_its_api(vendor: VendorServer) -> None:
    messages = [
        {"role": "system", "content": "One."},
        {"role": "developer", "content": "Two."},
        {"role": "user", "content": "think"},
    ]
    params = {
        "reasoning_effort": "low",
        "max_completion_tokens": 400,
        "seed": 1,
        "verbosity": "low",
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
        "logprobs": True,
    }
    answer = ask("openai:responses:gpt-4o", Request(messages, params=params, tools=[WEATHER]))
    body = vendor.last()["body"]
    assert answer.text == "echo: think" and answer.usage.cached_input_tokens == 4 and answer.logprobs[0]["logprob"] < 0
    assert body["instructions"] == "One.\n\nTwo." and body["input"] == [{"role": "user", "content": "think"}]
    assert body["reasoning"] == {"effort": "low"} and body["max_output_tokens"] == 400 and body["store"] is False
    assert body["tool_choice"] == {"type": "function", "name": "weather"} and "seed" not in body
    assert body["text"]["format"]["name"] == "x" and body["text"]["verbosity"] == "low"
    assert body["tools"][0]["name"] == "weather" and body["tools"][0]["strict"] is False


@pytest.mark.parametrize(
    ("version", "name", "path", "query"),
    [
        ("", "azure:chat:my-gpt", "/openai/v1/chat/completions", {}),
        ("", "azure:responses:my-gpt", "/openai/v1/responses", {}),
        ("2024-10-21", "azure/my-gpt", "/openai/deployments/my-gpt/chat/completions", {"api-version": ["2024-10-21"]}),
        ("2024-10-21", "azure:responses:my-gpt", "/openai/v1/responses", {}),
        ("preview", "azure:responses:my-gpt", "/openai/v1/responses", {"api-version": ["preview"]}),
    ],
)
def test_azure_is_asked_at_its_deployment_or_its_v1_endpoint(
    version: str, name: str, path: str, query: Any, vendor: VendorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_API_VERSION", version)
    assert ask(name, "hi").text == "echo: hi"
    seen = vendor.last()
    assert (seen["path"], seen["query"]) == (path, query) and seen["headers"]["api-key"] == KEY


@pytest.mark.parametrize("name", ["openai:o4-mini", "openai:gpt-5", "openai:responses:gpt-5", "azure:chat:gpt-5"])
def test_a_reasoning_model_gets_no_temperature_and_the_new_limit(name: str, vendor: VendorServer) -> None:
    warnings: list[str] = []
    params = {"temperature": 0, "max_tokens": 50, "reasoning_effort": "low"}
    assert ask(name, Request([{"role": "user", "content": "hi"}], params=params), warnings).text == "echo: hi"
    body = vendor.last()["body"]
    assert not {"temperature", "max_tokens"} & body.keys()
    assert 50 in (body.get("max_completion_tokens"), body.get("max_output_tokens"))
    assert len(warnings) == 1 and "temperature is not sent" in warnings[0] and warnings[0].endswith("[param_dropped]")


@pytest.mark.parametrize("name", ["openai:future-model", "openai:responses:future-model"])
def test_what_a_model_refuses_by_name_is_learned(name: str) -> None:
    warnings: list[str] = []
    params = {"temperature": 0, "max_tokens": 50, "top_p": 0.5}
    assert ask(name, Request([{"role": "user", "content": "hi"}], params=params), warnings).text == "echo: hi"
    assert [warning.split()[2] for warning in warnings] == ["temperature", "top_p"]


def test_requests_in_flight_learn_together() -> None:
    warnings: list[str] = []
    request = Request([{"role": "user", "content": "hi"}], params={"temperature": 0, "max_tokens": 50})

    async def run() -> list[Response]:
        llms = Llms(Settings(), LlmOptions(use_cache=False), warnings.append)
        try:
            llm = llms.get("openai:future-model")
            return list(await asyncio.gather(*(llm(request) for _ in range(20))))
        finally:
            await llms.close()

    assert {answer.text for answer in asyncio.run(run())} == {"echo: hi"} and len(warnings) == 1


def test_another_error_400_is_not_swallowed() -> None:
    with pytest.raises(CallError, match="frobnicate"):
        ask("openai:gpt-4o", Request([{"role": "user", "content": "hi"}], params={"frobnicate": 1}))


def test_a_thinking_claude_gets_what_it_accepts(vendor: VendorServer) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    params = {"thinking": thinking, "temperature": 0, "top_k": 3, "reasoning_effort": "minimal", "max_tokens": 2000}
    answer = ask("anthropic:messages:claude-x", Request([{"role": "user", "content": "think"}], params=params))
    body = vendor.last()["body"]
    assert answer.text == "echo: think" and body["output_config"] == {"effort": "low"}
    assert not {"temperature", "top_k", "reasoning_effort"} & body.keys()


def test_the_limit_of_an_answer_has_room_for_thinking(vendor: VendorServer) -> None:
    thinking = {"type": "enabled", "budget_tokens": 8000}
    ask("anthropic:claude-x", Request([{"role": "user", "content": "hi"}], params={"thinking": thinking}))
    assert vendor.last()["body"]["max_tokens"] == 12096


def test_mistral_has_names_of_its_own(vendor: VendorServer) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    ask("mistral:mistral-small", Request(messages, params={"seed": 7}))
    body = vendor.last()["body"]
    assert body["random_seed"] == 7 and body["messages"][0]["role"] == "system"


def test_log_probabilities_of_a_chat() -> None:
    answer = ask("openai:gpt-4o", Request([{"role": "user", "content": "hi"}], params={"logprobs": True}))
    assert answer.logprobs == [{"token": "echo", "logprob": -0.25, "bytes": None, "top_logprobs": []}]


@pytest.mark.parametrize("name", ["openai:embedding:small", "azure:embeddings:my-gpt"])
def test_embeddings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")

    async def run() -> list[list[float]]:
        llms = Llms(Settings(), LlmOptions())
        try:
            return await llms.embedder(name)(["a", "abc"])
        finally:
            await llms.close()

    assert asyncio.run(run()) == [[1.0, 1.0], [3.0, 1.0]]


def test_a_key_does_not_follow_a_redirect(vendor: VendorServer) -> None:
    with pytest.raises(CallError, match="307"):
        ask("openai:gpt-4o", "hi", base_url=f"{vendor.url}/moved/v1")
    assert vendor.last()["path"].startswith("/moved/")


def test_a_provider_of_the_settings(vendor: VendorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    section = ProviderSection(f"{vendor.url}/openai/v1", "ACME_KEY", "responses", "api-key")

    async def run() -> Response:
        llms = Llms(Settings(providers={"acme": section}), LlmOptions())
        try:
            return await llms.get("acme:big")(Request([{"role": "user", "content": "hi"}]))
        finally:
            await llms.close()

    assert asyncio.run(run()).text == "echo: hi" and vendor.last()["path"] == "/openai/v1/responses"


def test_nothing_is_sent_to_an_address_of_a_data_file() -> None:
    settings = Settings()
    llm = resolve(settings, "openai:gpt-4o", {"base_url": "https://example.com/v1"}, label="x", is_trusted=False)

    async def run() -> Response:
        return await Llms(with_llms(settings, [llm]), LlmOptions()).get("x")(Request([]))

    with pytest.raises(EvalloomError) as refused:
        asyncio.run(run())
    assert refused.value.code == "key_not_sent" and KEY not in str(refused.value)
    assert isinstance(llm, LlmSettings)
