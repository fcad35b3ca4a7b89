"""The shelf of llms: what is made of settings, and how the wrappers work together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalloom.core.errors import BudgetSpent, CallError, EvalloomError
from evalloom.core.http import sleeping
from evalloom.core.model import Request, Response
from evalloom.llms import LLMS, LlmOptions, Llms
from evalloom.settings import PROTOCOLS, LlmSettings, Price, Settings

KEY = "sk-0123456789abcdef"
DEFAULT = LlmOptions()


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def own_server(serve: Callable[..., Any]) -> Any:
    """A server that nobody else asks, so that what it counts is ours."""
    return serve()


def ask(text: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": text}], **more)


def using(use: Callable[[Llms], Awaitable[Any]], llm: LlmSettings, options: LlmOptions = DEFAULT, **more: Any) -> Any:
    """What comes of using the llms of a batch; no retry really waits."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    async def run() -> Any:
        sleeping.set(sleep)
        llms = Llms(Settings(llms={llm.name: llm}, **more), options)
        try:
            return await use(llms)
        finally:
            await llms.close()

    return asyncio.run(run())


def one(url: str, model: str = "m", **more: Any) -> LlmSettings:
    return LlmSettings("one", model=model, base_url=url, **more)


def test_every_protocol_of_the_settings_can_be_made() -> None:
    assert set(LLMS) == set(PROTOCOLS)


def test_own_parameters_stand_below_those_of_the_request(llm_server: Any) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one")(ask("x", params={"top_p": 1}))

    settings = one(llm_server.url, "mirror", params={"top_p": 0.5, "seed": 3}, headers={"x-team": "eval"})
    found = json.loads(using(use, settings).text)
    assert (found["body"]["top_p"], found["body"]["seed"], found["headers"]["x-team"]) == (1, 3, "eval")
    assert found["headers"]["authorization"] == f"Bearer {KEY}"


def test_an_llm_is_made_once() -> None:
    async def use(llms: Llms) -> None:
        assert llms.get("one") is llms.get("one")
        assert llms.get("one") is not llms.get("one", is_judge=True)

    using(use, one("http://127.0.0.1:9"))


def test_an_unknown_llm_is_said() -> None:
    async def use(llms: Llms) -> None:
        llms.get("two")

    with pytest.raises(EvalloomError, match="two"):
        using(use, one("http://127.0.0.1:9"))


def test_retries_and_tokens_and_cost_come_with_the_answer(llm_server: Any) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one")(ask("[[flaky-2]] what it costs"))

    usage = using(use, one(llm_server.url, price=Price(1.0, 2.0))).usage
    assert (usage.retries, usage.calls, usage.unpriced) == (2, 1, 0)
    assert usage.cost == pytest.approx((usage.input_tokens + 2 * usage.output_tokens) / 1e6)


def test_prices_are_looked_up_by_model_and_missing_ones_are_counted(llm_server: Any) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one")(ask("priced or not"))

    no_cache = LlmOptions(use_cache=False)
    assert using(use, one(llm_server.url), no_cache).usage.unpriced == 1
    assert using(use, one(llm_server.url), no_cache, prices={"m": Price(1.0, 1.0)}).usage.cost > 0


def test_as_judge_and_as_itself_an_llm_has_one_limit(own_server: Any) -> None:
    async def use(llms: Llms) -> None:
        asked = [llms.get("one", is_judge=bool(n % 2))(ask(f"[[slow-20]] {n}")) for n in range(8)]
        await asyncio.gather(*asked)

    using(use, one(own_server.url, concurrency=2))
    assert (own_server.stats()["max_in_flight"], own_server.stats()["requests"]) == (2, 8)


def test_temperature_zero_is_asked_once_and_repeats_are_not(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[Response]:
        llm = llms.get("one")
        return [await llm(ask("cached?", params={"temperature": 0}, repeat=repeat)) for repeat in (0, 0, 1)]

    assert [response.usage.cached for response in using(use, one(llm_server.url))] == [0, 1, 0]


def test_an_answer_that_repeats_the_key_is_not_kept(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[Response]:
        return [await llms.get("one")(ask("say it", params={"temperature": 0})) for _ in range(2)]

    answers = using(use, one(llm_server.url, "mirror"))
    assert KEY in answers[0].text and [answer.usage.cached for answer in answers] == [0, 0]
    assert not any(KEY.encode() in file.read_bytes() for file in Path(".evalloom/cache").iterdir())


def test_half_a_surrogate_pair_is_cached_and_recorded_like_any_answer(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[Response]:
        return [await llms.get("one")(ask("[[lone]]", params={"temperature": 0})) for _ in range(2)]

    for options, cached in ((DEFAULT, 1), (LlmOptions(record="tape.jsonl"), 0), (LlmOptions(replay="tape.jsonl"), 0)):
        answers = using(use, one(llm_server.url), options)
        assert [answer.text for answer in answers] == ["half \ufffd of it"] * 2
        assert answers[1].usage.cached == cached


@pytest.mark.parametrize(("protocol", "path"), [("openai", "/chat/completions"), ("anthropic", "/messages")])
def test_the_query_of_a_base_url_is_sent_behind_the_path(llm_server: Any, protocol: Any, path: str) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one")(ask("x"))

    url = f"{llm_server.url}/v1?api-version=2024-10-21"
    sent = json.loads(using(use, one(url, "mirror", protocol=protocol)).text)
    assert (sent["path"], sent["query"]) == (path, "api-version=2024-10-21")


def test_without_the_cache_everything_is_asked(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[Response]:
        return [await llms.get("one")(ask("uncached", params={"temperature": 0})) for _ in range(2)]

    answers = using(use, one(llm_server.url), LlmOptions(use_cache=False))
    assert [answer.usage.cached for answer in answers] == [0, 0]


def test_a_spent_budget_stops_the_next_question(llm_server: Any) -> None:
    async def use(llms: Llms) -> None:
        for number in range(20):
            await llms.get("one")(ask(f"budget {number}"))

    with pytest.raises(BudgetSpent):
        using(use, one(llm_server.url), LlmOptions(max_tokens=40))


def test_what_was_recorded_is_played_back_without_a_server(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[str]:
        return [(await llms.get("one")(ask(f"say: {text}"))).text for text in ("a", "b")]

    settings = one(llm_server.url)
    said = using(use, settings, LlmOptions(record="tape.jsonl"))
    assert KEY not in Path("tape.jsonl").read_text("utf-8")
    nowhere = msgspec.structs.replace(settings, base_url="http://127.0.0.1:9")
    assert using(use, nowhere, LlmOptions(replay="tape.jsonl")) == said == ["a", "b"]


def test_a_stream_is_asked_for_where_the_settings_say_so(llm_server: Any) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one")(ask("say: in pieces"))

    assert using(use, one(llm_server.url, stream=True)).text == "in pieces"


def test_embeddings(llm_server: Any) -> None:
    async def use(llms: Llms) -> list[list[float]]:
        return await llms.embedder("one")(["a", "b"])

    assert len(using(use, one(llm_server.url))) == 2


def test_embeddings_share_the_limits_of_their_llm_and_are_tried_again(own_server: Any) -> None:
    async def use(llms: Llms) -> list[Any]:
        embed, llm = llms.embedder("one"), llms.get("one")
        asked = [embed([f"[[slow-20]] {n}"]) for n in range(6)] + [llm(ask(f"[[slow-20]] {n}")) for n in range(2)]
        await asyncio.gather(*asked)
        return await embed(["[[flaky-2]]"])

    assert len(using(use, one(own_server.url, concurrency=2))) == 1
    assert (own_server.stats()["max_in_flight"], own_server.stats()["requests"]) == (2, 11)


def test_embeddings_count_against_the_budget(llm_server: Any) -> None:
    async def use(llms: Llms) -> float:
        await llms.embedder("one")(["abc", "de"])
        with pytest.raises(BudgetSpent):
            await llms.embedder("one")(["more"])
        return llms.budget.cost

    settings = one(llm_server.url, price=Price(2.0, 0.0))
    assert using(use, settings, LlmOptions(max_tokens=5)) == pytest.approx(0.00001)


def test_embeddings_are_recorded_and_played_back_without_a_key(
    llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(llms: Llms) -> list[list[float]]:
        await llms.get("one")(ask("ab"))
        return await llms.embedder("one")(["ab", "c"])

    async def use_other(llms: Llms) -> None:
        await llms.embedder("one")(["never asked"])

    recorded = using(use, one(llm_server.url), LlmOptions(record="tape.jsonl"))
    monkeypatch.delenv("OPENAI_API_KEY")
    nowhere = one("https://llm.invalid/v1")
    assert using(use, nowhere, LlmOptions(replay="tape.jsonl")) == recorded
    with pytest.raises(CallError, match="not_recorded"):
        using(use_other, nowhere, LlmOptions(replay="tape.jsonl"))


@pytest.mark.parametrize(
    ("params", "is_judge", "sent"),
    [
        ({}, True, 0),
        ({}, False, "none"),
        ({"temperature": 0.5}, True, 0.5),
        ({"temperature": None}, True, "none"),
        ({"temperature": None}, False, "none"),
    ],
)
def test_a_judge_is_asked_at_temperature_0_unless_it_is_said(
    llm_server: Any, params: dict[str, Any], is_judge: bool, sent: Any
) -> None:
    async def use(llms: Llms) -> Response:
        return await llms.get("one", is_judge)(ask("x", params={"seed": None}))

    body = json.loads(using(use, one(llm_server.url, "mirror", params=params)).text)["body"]
    assert body.get("temperature", "none") == sent and "seed" not in body
