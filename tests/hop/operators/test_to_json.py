"""What users pass in as JSON: told as far as it can be, and never an exception."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.hop.operators.to_json import as_json, json_of, text_of


class Untold:
    """It does not even say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("untold")


class Model:
    """What pydantic's models have."""

    def model_dump(self) -> dict[str, Any]:
        return {"score": 1}


class Unwilling(dict[str, Any]):
    """A mapping that cannot be gone through."""

    def items(self) -> Any:
        raise RuntimeError("no")


LOOPED: list[object] = [1]
LOOPED.append(LOOPED)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({1}, [1]),
        ({"m": Model(), "when": date(2026, 1, 2)}, {"m": {"score": 1}, "when": "2026-01-02"}),
        ("\ud800!", "?!"),
        (LOOPED, [1, "…"]),
        ({"o": Untold(), "m": Model()}, {"o": "<Untold>", "m": {"score": 1}}),
        ({Untold(): float("nan")}, {"<Untold>": None}),
        ([10**5000, 2**70], ["<int>", 2**70]),
        ([Untold(), Unwilling(a=1)], ["<Untold>", "{'a': 1}"]),
    ],
    ids=type,
)
def test_any_value_is_told_as_far_as_it_can_be(value: Any, told: Any) -> None:
    assert as_json(value) == json.loads(json_of(value)) == told


def test_what_lies_too_deep_is_left_out() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert json_of(deep).count("[") < 100


def test_a_text_is_its_own_text() -> None:
    assert text_of('say "x"') == 'say "x"' and text_of(["x"]) == '["x"]'


ODD: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.text()
ODD |= st.builds(Untold) | st.sampled_from([Decimal("1.5"), ("a", 1), frozenset((1,)), int, "\udfff"])


@given(st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(ODD, inner), max_leaves=8))
def test_nothing_raises_and_json_stays_what_it_is(value: Any) -> None:
    told = as_json(value)
    assert as_json(told) == told == json.loads(json_of(value))
