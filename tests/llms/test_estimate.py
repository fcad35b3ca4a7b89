"""Tokens of calls whose server sends no usage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import BudgetSpent
from evalloom.core.model import Request, Response, Run, Usage
from evalloom.llms import LlmOptions, Llms
from evalloom.llms.estimate import Counted
from evalloom.settings import LlmSettings, Price, Settings

PRICE = Price(1.0, 2.0)
NO_CACHE = LlmOptions(use_cache=False)


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(text: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": text}], **more)


def use(llm: LlmSettings, calls: Callable[[Llms], Awaitable[Any]], options: LlmOptions = NO_CACHE) -> Any:
    async def run() -> Any:
        llms = Llms(Settings(llms={llm.name: llm}), options)
        try:
            return await calls(llms)
        finally:
            await llms.close()

    return asyncio.run(run())


def silent(url: str, **more: Any) -> LlmSettings:
    """An llm whose server sends no usage."""
    return LlmSettings("one", model="no-usage", base_url=url, key_env="none", price=PRICE, **more)


async def say(llms: Llms, is_judge: bool = False) -> Usage:
    return (await llms.get("one", is_judge)(ask("say: 你好世界"))).usage


async def say_twice(llms: Llms) -> Usage:
    return await say(llms) + await say(llms)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"protocol": "anthropic"}])
def test_tokens_and_cost_are_estimated_and_marked(llm_server: Any, more: dict[str, Any]) -> None:
    usage: Usage = use(silent(llm_server.url, **more), say)
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (6, 4, 1)
    assert usage.cost == pytest.approx(14e-6) and (usage.calls, usage.unpriced) == (1, 0)


def test_what_the_server_counts_is_not_estimated(llm_server: Any) -> None:
    usage: Usage = use(LlmSettings("one", model="m", base_url=llm_server.url, key_env="none", price=PRICE), say)
    assert (usage.output_tokens, usage.estimated) == (12, 0)


@pytest.mark.parametrize("options", [{"max_tokens": 15}, {"max_cost": 15e-6}])
@pytest.mark.parametrize("is_judge", [False, True])
def test_a_budget_stops_calls_without_usage(llm_server: Any, options: dict[str, Any], is_judge: bool) -> None:
    async def calls(llms: Llms) -> None:
        for _ in range(3):
            await say(llms, is_judge)

    with pytest.raises(BudgetSpent, match=r"is reached: .* \(estimated for 2 calls\)"):
        use(silent(llm_server.url), calls, LlmOptions(use_cache=False, **options))


def test_embeddings_cost_what_is_embedded_and_not_their_vectors(llm_server: Any) -> None:
    async def calls(llms: Llms) -> tuple[int, int]:
        await llms.embedder("one")(["abcd", "你好"])
        return llms.budget.tokens, llms.budget.estimated

    assert use(silent(llm_server.url), calls) == (3, 1)


def test_a_recording_without_usage_is_estimated_too() -> None:
    request = {"messages": ask("say: 你好世界").messages}
    entry = {"version": 1, "llm": "one", "request": request, "response": {"text": "你好世界", "usage": {"calls": 1}}}
    Path("tape.jsonl").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    usage: Usage = use(silent("http://127.0.0.1:9"), say, LlmOptions(replay="tape.jsonl"))
    assert (usage.tokens, usage.estimated) == (10, 1)


@given(st.text(), st.text(), st.lists(st.dictionaries(st.text(), st.text()), max_size=2))
def test_an_answer_without_tokens_gets_some(prompt: str, answer: str, tools: list[dict[str, str]]) -> None:
    async def llm(request: Request) -> Response:
        return Response(answer, tool_calls=tools)

    usage = asyncio.run(Counted(llm)(ask(prompt, tools=tools))).usage
    bare = asyncio.run(Counted(llm)(ask(prompt))).usage
    assert usage.input_tokens >= bare.input_tokens >= 1 and usage.output_tokens == bare.output_tokens
    assert (usage.estimated, usage.calls) == (1, 1)


def test_logs_are_readable_with_and_without_the_mark() -> None:
    assert msgspec.json.encode(Usage(1, calls=1)) == b'{"input_tokens":1,"calls":1}'
    old, new = (
        msgspec.json.decode(f'{{"key": "k", "case_id": "c", "usage": {usage}}}', type=Run).usage
        for usage in ('{"input_tokens": 1}', '{"input_tokens": 1, "estimated": 1, "of_a_later_version": 1}')
    )
    assert (old + new).estimated == 1 and (old + new).tokens == 2


@pytest.mark.parametrize("protocol", ["scripted", "echo"])
def test_an_offline_llm_costs_what_its_price_says(protocol: Literal["scripted", "echo"]) -> None:
    Path("s.yaml").write_text("default: 好的\n", encoding="utf-8")
    llm = LlmSettings("one", protocol=protocol, file="s.yaml" if protocol == "scripted" else "", price=Price(1e6, 1e6))
    usage: Usage = use(llm, say)
    written = 2 if protocol == "scripted" else 6
    # Its tokens are those of the script, or counted like this on purpose: nothing that a server left out.
    assert (usage.cost, usage.tokens, usage.estimated) == (6 + written, 6 + written, 0)
    with pytest.raises(BudgetSpent, match=f"--max-cost 5 is reached: {6 + written} is spent"):
        use(llm, say_twice, LlmOptions(max_cost=5))
    free: Usage = use(msgspec.structs.replace(llm, price=None), say)
    assert (free.cost, free.unpriced) == (0, 0)
