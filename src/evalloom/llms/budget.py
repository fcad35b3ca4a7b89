"""Computes the cost of calls, and stops them when the budget is spent."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol

import msgspec

from evalloom.core.errors import BudgetSpent
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Llm, Request, Response, Usage
from evalloom.core.text import pluralize

_MILLION = 1_000_000
# In most tokenizers one such character is about one token; of other scripts, four are.
_CJK = lazy_pattern("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_CJK_BOUNDS = "\u2e80\ua000\uac00\ud7b0\uf900\ufb00\uff00\ufff0\U00020000\U00040000"
"""The first characters of its ranges, and those behind the last ones."""
_SHORT = 500
"""For some texts of this length, to look up each character is faster than to compile the pattern, which takes 2 ms."""


class TokenPrice(Protocol):
    """The price of a million tokens in the user's currency; `cached_input` None means the price of `input`."""

    @property
    def input(self) -> float: ...

    @property
    def output(self) -> float: ...

    @property
    def cached_input(self) -> float | None: ...


class Budget:
    """The limits of a batch and what it has spent, shared by all its llms. None means no limit."""

    def __init__(self, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        self.cost = 0.0
        self.tokens = 0
        self.estimated = 0
        self._max_cost = math.inf if max_cost is None else max_cost
        self._max_tokens = math.inf if max_tokens is None else max_tokens

    @property
    def is_spent(self) -> bool:
        return self.cost >= self._max_cost or self.tokens >= self._max_tokens

    def check(self) -> None:
        """Raise BudgetSpent if a limit is reached."""
        if self.cost >= self._max_cost:
            raise BudgetSpent(f"--max-cost {self._max_cost:g} is reached: {self.cost:.4g} is spent{self._note()}")
        if self.tokens >= self._max_tokens:
            used = f"{self.tokens} tokens are used{self._note()}"
            raise BudgetSpent(f"--max-tokens {self._max_tokens} is reached: {used}")

    async def refill(self) -> None:
        """Get more when a limit is reached, or raise BudgetSpent; nobody gives a batch on one machine more."""
        self.check()

    def spend(self, usage: Usage) -> None:
        self.cost += usage.cost
        self.tokens += usage.tokens
        self.estimated += usage.estimated

    def _note(self) -> str:
        return f" (estimated for {pluralize(self.estimated, 'call')})" if self.estimated else ""


class Metered:
    """An llm whose answers have a cost, and that gets no request once the budget is spent."""

    def __init__(
        self, llm: Llm, budget: Budget, price: TokenPrice | None = None, prices: Mapping[str, TokenPrice] | None = None
    ) -> None:
        """`prices` are those of the models that a request may name instead; None where they cost the same."""
        self._llm = llm
        self._budget = budget
        self._price = price
        self._prices = prices

    async def __call__(self, request: Request) -> Response:
        """Return the answer with its cost. Calls in flight when a limit is reached are still paid for."""
        if self._budget.is_spent:
            await self._budget.refill()
        response = await self._llm(request)
        model = request.params.get("model")
        price = self._price if model is None or self._prices is None else self._prices.get(model)
        usage = priced(response.usage, price)
        self._budget.spend(usage)
        return msgspec.structs.replace(response, usage=usage)


def priced(usage: Usage, price: TokenPrice | None) -> Usage:
    """Return the usage with its cost; `unpriced` if the price or the tokens are unknown."""
    if usage.cost:
        return usage
    if price is None or (not usage.tokens and (price.input or price.output)):
        return msgspec.structs.replace(usage, unpriced=1)
    cached = usage.cached_input_tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    read = (usage.input_tokens - cached) * price.input + cached * cached_price
    return msgspec.structs.replace(usage, cost=(read + usage.output_tokens * price.output) / _MILLION)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one per Chinese, Japanese or Korean character, one per four others."""
    if text.isascii():
        wide = 0
    elif len(text) <= _SHORT:
        wide = sum([bisect_right(_CJK_BOUNDS, character) % 2 for character in text])
    else:
        wide = len(_CJK.findall(text))
    return wide + (len(text) - wide + 3) // 4
