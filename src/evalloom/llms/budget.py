"""What calls cost, and the end of them when the budget is spent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Protocol

import msgspec

from evalloom.core.errors import BudgetSpent
from evalloom.core.model import Llm, Request, Response, Usage

_MILLION = 1_000_000
# One such character is about one token in most tokenizers; of other scripts, four are.
_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


class Price(Protocol):
    """What a million tokens cost, in the user's currency; None is what `input` is."""

    @property
    def input(self) -> float: ...

    @property
    def output(self) -> float: ...

    @property
    def cached_input(self) -> float | None: ...


class Budget:
    """What may be spent in one batch and what has been, shared by all its llms. None is no limit."""

    def __init__(self, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        self.cost = 0.0
        self.tokens = 0
        self._max_cost = math.inf if max_cost is None else max_cost
        self._max_tokens = math.inf if max_tokens is None else max_tokens

    @property
    def is_spent(self) -> bool:
        return self.cost >= self._max_cost or self.tokens >= self._max_tokens

    def check(self) -> None:
        """Raises BudgetSpent once a limit has been reached."""
        if self.cost >= self._max_cost:
            raise BudgetSpent(f"--max-cost {self._max_cost:g} is reached: {self.cost:.4g} is spent")
        if self.tokens >= self._max_tokens:
            raise BudgetSpent(f"--max-tokens {self._max_tokens} is reached: {self.tokens} tokens are used")

    def spend(self, usage: Usage) -> None:
        self.cost += usage.cost
        self.tokens += usage.tokens


class Metered:
    """An llm whose answers say what they cost, and that is not asked once the budget is spent."""

    def __init__(
        self, llm: Llm, budget: Budget, price: Price | None = None, others: Mapping[str, Price] | None = None
    ) -> None:
        """`others` are the prices of the models that a request may name instead; None where they cost the same."""
        self._llm = llm
        self._budget = budget
        self._price = price
        self._others = others

    async def __call__(self, request: Request) -> Response:
        """The answer with its cost. Calls that are in flight when a limit is reached are still paid for."""
        self._budget.check()
        response = await self._llm(request)
        other = request.params.get("model")
        price = self._price if other is None or self._others is None else self._others.get(other)
        usage = priced(response.usage, price)
        self._budget.spend(usage)
        return msgspec.structs.replace(response, usage=usage)


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost; `unpriced` where the price or the tokens are not known."""
    if usage.cost:
        return usage
    if price is None or (not usage.tokens and (price.input or price.output)):
        return msgspec.structs.replace(usage, unpriced=1)
    cached = usage.cached_input_tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    read = (usage.input_tokens - cached) * price.input + cached * cached_price
    return msgspec.structs.replace(usage, cost=(read + usage.output_tokens * price.output) / _MILLION)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has: one per Chinese, Japanese or Korean character, one per four others."""
    wide = 0 if text.isascii() else len(_CJK.findall(text))
    return wide + (len(text) - wide + 3) // 4
