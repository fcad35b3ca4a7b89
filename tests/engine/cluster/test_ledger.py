"""The ledger never leases more than what is left, and in the end all of it is spent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.engine.cluster.ledger import Amounts, Ledger

pytestmark = pytest.mark.req("WORK-40")


class Spender:
    """A worker that spends whole calls while its lease allows one more."""

    def __init__(self, name: str, calls: int, price: float) -> None:
        self.name = name
        self.calls = calls
        self.price = price
        self.spent = 0.0
        self.lease = 0.0
        self.generation = 0

    def work(self) -> None:
        while self.calls and self.spent < self.lease:
            self.calls -= 1
            self.spent += self.price

    def take(self, generation: int, lease: Amounts) -> None:
        self.generation, self.lease = generation, lease[0]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_all_is_spent_and_hardly_more(wanted: list[tuple[int, float]], limit: int) -> None:
    ledger = Ledger(float(limit), None)
    spenders = [Spender(f"w{number}", *one) for number, one in enumerate(wanted)]
    for spender in spenders:
        ledger.open(spender.name)
    for _ in range(500):
        for name, (generation, lease) in ledger.leases().items():
            next(one for one in spenders if one.name == name).take(generation, lease)
        assert sum(max(one.lease, one.spent) for one in spenders) <= limit + sum(one.price for one in spenders)
        for spender in spenders:
            spender.work()
            is_dry = bool(spender.calls) and spender.spent >= spender.lease
            ledger.report(spender.name, spender.spent, 0, 0, spender.generation, is_dry)
        if ledger.over or not any(one.calls for one in spenders):
            break
    spent = sum(one.spent for one in spenders)
    needed = sum(calls * price for calls, price in wanted)
    assert bool(ledger.over) == (spent >= limit)
    assert spent >= min(needed, limit)
    # Each may have one call in flight when the limit is reached.
    assert spent < limit + sum(one.price for one in spenders)


def test_what_a_lost_worker_has_spent_stays_spent() -> None:
    ledger = Ledger(None, 100)
    ledger.open("a")
    generation, lease = ledger.leases()["a"]
    assert lease[1] == 50
    ledger.report("a", 0.0, 40, 0, generation, False)
    ledger.close("a")
    ledger.open("b")
    assert ledger.leases()["b"][1][1] == 30
    ledger.report("b", 0.0, 60, 2, 0, False)
    assert ledger.over == "--max-tokens 100 is reached: 100 tokens are used (estimated for 2 calls)"
