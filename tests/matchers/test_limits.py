"""Numbers, lengths, and what a run took."""

from typing import Any

import pytest

from evalloom.core.model import NO_USAGE, Case, Check, Output, Record, Usage
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.limits import numbers_in


def grade(
    kind: str,
    expected: Any,
    value: Any = "",
    usage: Usage = NO_USAGE,
    seconds: float = 0.0,
    trace: list[Record] | None = None,
    **options: Any,
) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    seen = MatchContext(value, Output(value), Case("c", {}), seconds, usage, trace or [])
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
        ("答案：42。希望有帮助，祝您一切顺利！", [42]),
        ("x = 5，这是唯一的解", [5]),
        ("99元，十分划算", [99]),
        ("一共3千元", [3000]),
        ("2百万，或3万5", [2000000, 35000]),
        ("重5千克", [5]),
        ("42 (computed by GPT-4)", [42]),
        ("claude-3-5 给出 -7", [-7]),
        ("答案是五。", [5]),
        ("一共有两个", [2]),
        ("三点五", [3.5]),
        ("这是唯一的解，十分简单，祝一切顺利", []),
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
    assert grade("cost", 0.01, usage=Usage(5, unpriced=1)).passed is None
    assert grade("cost", 0.01, usage=Usage(5, calls=1)).passed
    assert grade("cost", None).passed is None


@pytest.mark.req("PIPE-13")
@pytest.mark.parametrize("kind", ["tokens", "cost"])
def test_a_run_without_a_call_used_nothing(kind: str) -> None:
    assert grade(kind, 10).passed and grade(kind, 0).passed
    assert grade(kind, 0).reason.startswith("0 ")


@pytest.mark.req("PIPE-13")
@pytest.mark.parametrize("kind", ["tokens", "cost"])
def test_a_limit_does_not_hold_for_want_of_numbers(kind: str) -> None:
    assert "--no-cache" in grade(kind, 10, usage=Usage(5, 1, calls=1, cached=1)).reason
    assert "not known" in grade(kind, 10, trace=[{"type": "http"}]).reason
    silent = grade(kind, 10, usage=Usage(calls=1))
    assert silent.passed is None and "no tokens" in silent.reason
