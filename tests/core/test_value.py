"""What users' code returns becomes JSON, or an error that says where it is not."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.model import Output
from evalloom.core.value import as_output, plain, read_json, read_text


@dataclass
class Answer:
    text: str
    scores: tuple[float, ...] = (0.5,)
    nested: list[Any] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int


class Pair(NamedTuple):
    left: int
    right: int


class Color(StrEnum):
    RED = "red"


class Level(Enum):
    HIGH = 3


class Model:
    """Looks like a pydantic model."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("a", ("b",)), ["a", ["b"]]),
        (Answer("x", nested=[Point(1)]), {"text": "x", "scores": [0.5], "nested": [{"x": 1}]}),
        (Pair(1, 2), [1, 2]),
        ([Color.RED, Level.HIGH], ["red", 3]),
        (Model(), {"mode": "json"}),
        ({"n": np.int64(3), "f": np.float64(0.5), "a": np.arange(2)}, {"n": 3, "f": 0.5, "a": [0, 1]}),
        (2**70, 2**70),
    ],
)
def test_objects_become_json(value: Any, expected: Any) -> None:
    found = as_output(value).value
    assert found == expected
    assert msgspec.json.decode(msgspec.json.encode(found)) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "output: expected a number that JSON has, got nan"),
        ({"a": [1, {2}]}, "output.a[1]: expected a JSON value, got set"),
        ([{1: 2}], "output[0]: expected keys that are strings, got the key 1"),
        ("\ud800", "half a surrogate pair"),
        (b"x", "got bytes"),
        (Answer, "got type"),
        (Output(1, outcome="GREAT"), "output.outcome: expected OK"),  # type: ignore[arg-type]
        (Output(1, steps=[1]), "output.steps: expected an object, got a list"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(CallError) as caught:
        as_output(value)
    assert caught.value.code == "bad_output"
    assert said in caught.value.message


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CallError, match="levels deep"):
        plain(loop)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_stays_as_it_is(value: Any) -> None:
    assert plain(value) == value
    assert as_output(Output(value)) == Output(value)


@given(st.binary(max_size=40) | JSON.map(msgspec.json.encode))
def test_any_bytes_are_read_as_text_or_json(text: bytes) -> None:
    found = read_text(text)
    if isinstance(found, dict | list):
        assert found == read_json(text)
    else:
        assert found == text.decode("utf-8", "replace")


def test_deep_json_is_refused_not_crashed_on() -> None:
    with pytest.raises(ValueError, match="recursion"):
        read_json(b"[" * 100_000)
