"""The budget of a batch on a cluster: the client keeps the account, and workers spend only what is leased to them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from evalloom.core.errors import BudgetSpent
from evalloom.llms.budget import Budget

Amounts = tuple[float, float]
"""Cost and tokens."""


class _Account(Struct):
    """What a worker has spent, up to where it may spend, and the number of its newest lease."""

    spent: Amounts = (0.0, 0.0)
    estimated: int = 0
    lease: Amounts = (0.0, 0.0)
    generation: int = 0
    reduced: Amounts | None = None
    """A lower lease that the worker has not confirmed yet."""


class Ledger:
    """Leases parts of what is left of a budget: half of it at a time, divided among those who ask."""

    def __init__(self, max_cost: float | None, max_tokens: int | None) -> None:
        self.is_limited = max_cost is not None or max_tokens is not None
        self._limits = (
            math.inf if max_cost is None else max_cost,
            math.inf if max_tokens is None else float(max_tokens),
        )
        self._budget = Budget(max_cost, max_tokens)
        self._accounts: dict[str, _Account] = {}
        self._closed: Amounts = (0.0, 0.0)
        self._closed_estimated = 0
        self._generation = 0
        self._asking: dict[str, None] = {}

    def open(self, worker: str) -> None:
        self.close(worker)
        self._accounts[worker] = _Account()
        self._asking[worker] = None

    def close(self, worker: str) -> None:
        """Close the account of a worker that is gone; what it has reported stays spent."""
        account = self._accounts.pop(worker, None)
        self._asking.pop(worker, None)
        if account is not None:
            self._closed = _sum([self._closed, account.spent])
            self._closed_estimated += account.estimated

    def report(self, worker: str, cost: float, tokens: int, estimated: int, generation: int, wants_more: bool) -> None:
        """Note what a worker has spent, and whether it asks for more."""
        account = self._accounts.get(worker)
        if account is None:
            return
        account.spent, account.estimated = (cost, float(tokens)), estimated
        if generation == account.generation and account.reduced is not None:
            account.lease, account.reduced = account.reduced, None
        if wants_more:
            self._asking[worker] = None

    @property
    def over(self) -> str:
        """Why nothing may begin any more; empty while something is left."""
        totals = _sum([self._closed, *(account.spent for account in self._accounts.values())])
        budget = self._budget
        budget.cost, budget.tokens = totals[0], int(totals[1])
        budget.estimated = self._closed_estimated + sum(account.estimated for account in self._accounts.values())
        try:
            budget.check()
        except BudgetSpent as error:
            return str(error)
        return ""

    def leases(self) -> dict[str, tuple[int, Amounts]]:
        """Return the new leases to announce, with their numbers: for those who ask, and lower ones to free a rest."""
        if not self._asking:
            return {}
        left = self._left()
        if min(left) <= 0:
            return self._reclaim()
        announced: dict[str, tuple[int, Amounts]] = {}
        share = 2 * max(1, len(self._accounts))
        for worker in list(self._asking):
            account = self._accounts[worker]
            if account.reduced is not None:
                continue
            del self._asking[worker]
            # The rest of tokens goes in whole ones: less than one is nothing.
            tokens = left[1] if left[1] < share else left[1] / share
            lease = (account.spent[0] + left[0] / share, account.spent[1] + tokens)
            account.lease = lease
            announced[worker] = self._number(account), lease
            left = self._left()
            if min(left) <= 0:
                break
        return announced

    def _left(self) -> Amounts:
        used = [self._closed]
        for worker, account in self._accounts.items():
            is_dry = worker in self._asking and account.reduced is None
            used.append(account.spent if is_dry else tuple(map(max, account.spent, account.lease)))  # type: ignore[arg-type]
        total = _sum(used)
        return self._limits[0] - total[0], self._limits[1] - total[1]

    def _reclaim(self) -> dict[str, tuple[int, Amounts]]:
        """Lower the leases of workers that do not ask to what they have spent: they ask when they need more."""
        announced: dict[str, tuple[int, Amounts]] = {}
        if any(account.reduced is not None for account in self._accounts.values()):
            return announced
        for worker, account in self._accounts.items():
            if worker not in self._asking and any(map(float.__gt__, account.lease, account.spent)):
                account.reduced = account.spent
                announced[worker] = self._number(account), account.spent
        return announced

    def _number(self, account: _Account) -> int:
        self._generation += 1
        account.generation = self._generation
        return self._generation


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    cost = tokens = 0.0
    for one in amounts:
        cost += one[0]
        tokens += one[1]
    return cost, tokens
