"""Costs are told with every answer, and a spent budget ends the asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import BudgetSpent
from evalloom.core.model import Request, Usage
from evalloom.llms.budget import Budget, Metered, estimate_tokens, priced
from evalloom.llms.cache import Cache, Store
from evalloom.llms.scripted import Scripted

ASK = Request([{"role": "user", "content": "hello"}], {"temperature": 0})


class Prices(NamedTuple):
    input: float
    output: float
    cached_input: float | None = None


def scripted(input_tokens: int = 1000, output_tokens: int = 500) -> Scripted:
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return Scripted([{"answer": "hi", "usage": usage}])


def test_an_answer_says_what_it_cost() -> None:
    budget = Budget()
    response = asyncio.run(Metered(scripted(), budget, Prices(2, 10))(ASK))
    assert response.usage == Usage(1000, 500, cost=0.007, calls=1)
    assert (budget.cost, budget.tokens, budget.is_spent) == (0.007, 1500, False)


def test_a_call_without_a_price_is_counted_as_unpriced() -> None:
    assert asyncio.run(Metered(scripted(), Budget())(ASK)).usage.unpriced == 1
    assert priced(Usage(calls=1), Prices(1, 1)).unpriced == 1
    assert priced(Usage(calls=1), Prices(0, 0)) == Usage(calls=1)


def test_input_from_the_cache_of_the_provider_has_a_price_of_its_own() -> None:
    usage = Usage(1000, 500, calls=1, cached_input_tokens=400)
    assert priced(usage, Prices(2, 10, 0.5)).cost == pytest.approx(0.0064)
    assert priced(usage, Prices(2, 10)).cost == pytest.approx(0.007)
    assert (usage + usage).cached_input_tokens == 800


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(max_cost=0.01), "--max-cost 0.01 is reached: 0.014 is spent"),
        (Budget(max_tokens=3000), "--max-tokens 3000 is reached: 3000 tokens are used"),
    ],
)
def test_nothing_is_sent_once_a_limit_is_reached(budget: Budget, said: str) -> None:
    llm = Metered(scripted(), budget, Prices(2, 10))
    asyncio.run(llm(ASK))
    asyncio.run(llm(ASK))
    with pytest.raises(BudgetSpent, match=said):
        asyncio.run(llm(ASK))
    assert budget.is_spent and budget.tokens == 3000


def test_a_budget_is_shared_by_llms() -> None:
    budget = Budget(max_tokens=1)
    asyncio.run(Metered(scripted(), budget)(ASK))
    with pytest.raises(BudgetSpent):
        asyncio.run(Metered(scripted(), budget)(ASK))


def test_a_budget_of_nothing_sends_nothing() -> None:
    with pytest.raises(BudgetSpent):
        asyncio.run(Metered(scripted(), Budget(max_cost=0))(ASK))


def test_an_answer_from_the_cache_costs_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "llm.sqlite3")
    budget = Budget()
    llm = Cache(Metered(scripted(), budget, Prices(2, 10)), store, ("scripted",))
    asyncio.run(llm(ASK))
    assert asyncio.run(llm(ASK)).usage == Usage(calls=1, cached=1)
    assert budget.tokens == 1500
    store.close()


def test_tokens_are_about_one_per_chinese_character_and_a_quarter_of_others() -> None:
    assert [estimate_tokens(text) for text in ("", "abcd", "abcde", "你好", "你好 abc", "안녕", "é" * 8)] == [
        0,
        1,
        2,
        2,
        3,
        2,
        2,
    ]


def test_a_character_counts_the_same_in_short_and_long_texts() -> None:
    for character in "\u2e7f\u2e80\u9fff\ua000\uabff\uac00\ud7af\ud7b0\uf900\ufaff\ufb00\uff00\uffef\ufff0\U0001f600\U00020000\U0003ffff":
        assert estimate_tokens(character * 400) * 10 == estimate_tokens(character * 4000)


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(first: str, second: str) -> None:
    assert estimate_tokens(first) <= estimate_tokens(first + second) <= estimate_tokens(first) + estimate_tokens(second)


def test_another_model_has_a_price_of_its_own() -> None:
    others = {"large": Prices(20, 100)}
    metered = Metered(scripted(), Budget(), Prices(2, 10), others)

    def cost(model: str) -> Usage:
        return asyncio.run(metered(Request(ASK.messages, {"model": model}))).usage

    assert cost("large").cost == 0.07
    assert cost("unheard of").unpriced == 1
