"""Numbers, lengths, and what a run took."""

from typing import Any

import pytest

from evalloom.matchers import Grade, Seen, by_kind
from evalloom.matchers.limits import numbers_in
from evalloom.model import NO_USAGE, Case, Check, Output, Usage


def grade(
    kind: str, expected: Any, value: Any = "", usage: Usage = NO_USAGE, seconds: float = 0.0, **options: Any
) -> Grade:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    seen = Seen(value, Output(value), Case("c", {}), seconds, usage)
    found = matcher.grade(Check(kind, expected, options=options), seen)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("答案是 1,234.5 元", [1234.5]),
        ("共三百二十个", [320]),
        ("约１２万人", [120000]),
        ("GPT4 gives -3.5e2.", [-350]),
        ("x=5; y = .5", [5, 0.5]),
        ("百分之五十", [50]),
        ("none", []),
    ],
)
def test_numbers_in_texts(text: str, numbers: list[float]) -> None:
    assert numbers_in(text) == numbers


def test_numeric() -> None:
    assert grade("numeric", 1234.5, "答案是 1,234.5 元").passed
    assert grade("numeric", 3.1, 3.0, tolerance=0.1).passed
    assert grade("numeric", 100, "about 104", relative=0.05).passed
    assert grade("numeric", 100, "about 106", relative=0.05).passed is False
    assert grade("numeric", 5, "5 of 6").passed is False
    assert grade("numeric", 5, "5 of 6", pick="first").passed
    assert grade("numeric", None, "42", min=40, max=50).passed
    assert grade("numeric", 5, "no number").passed is False
    assert grade("numeric", 5, True).passed is False
    assert grade("numeric", "x", "5").passed is None


def test_length() -> None:
    assert grade("length", None, "你好", max=2).passed
    assert grade("length", {"min": 3}, "你好").passed is False
    assert grade("length", 2, [1, 2]).passed
    assert grade("length", None, "hello big world 你好", unit="words", min=5, max=5).passed
    assert grade("word_count", {"min": 2, "max": 3}, "hello world").passed
    assert grade("length", None, "x").passed is None
    assert grade("length", 1, "x", unit="bytes").passed is None


def test_what_a_run_took() -> None:
    assert grade("latency", None, seconds=0.2, threshold=250).passed
    assert grade("latency", None, seconds=0.3, threshold=250).passed is False
    assert "--no-cache" in grade("latency", None, usage=Usage(cached=1), threshold=250).reason
    assert grade("tokens", 10, usage=Usage(6, 4)).passed
    assert grade("tokens", 10, usage=Usage(7, 4)).passed is False
    assert grade("cost", 0.01, usage=Usage(cost=0.02)).passed is False
    assert grade("cost", 0.01, usage=Usage(unpriced=1)).passed is None
    assert grade("cost", None).passed is None
