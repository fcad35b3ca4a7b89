"""Overlap of texts, by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.overlap import bleu, gleu, rouge_l, rouge_n, words_of


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


def test_words() -> None:
    assert words_of("Don't stop, 版本3.14 你好 GPT-4!") == ["don't", "stop", "版", "本", "3.14", "你", "好", "gpt-4"]
    assert words_of("カタ가나") == ["カ", "タ", "가나"]


def test_bleu_by_hand() -> None:
    # 1-grams 3/4; 2-grams (2+1)/(3+1); 3-grams (1+1)/(2+1); 4-grams (0+1)/(1+1); both have four words.
    expected = (3 / 4 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert bleu(["the", "cat", "sat", "down"], [["the", "cat", "sat", "up"]]) == pytest.approx(expected)
    # 我 爱 北: all of them stand in the reference, which is one longer.
    assert bleu(words_of("我爱北"), [words_of("我爱北京")]) == pytest.approx(math.exp(1 - 4 / 3))
    assert bleu(words_of("猫"), [words_of("狗")]) == 0
    assert bleu([], [["a"]]) == 0


def test_rouge_and_gleu_by_hand() -> None:
    ours, theirs = words_of("我爱北京"), words_of("我爱上海市")
    assert rouge_n(ours, theirs) == pytest.approx(2 * 2 / (4 + 5))
    assert rouge_n(ours, theirs, 2) == pytest.approx(2 * 1 / (3 + 4))
    assert rouge_l(["a", "x", "b", "c"], ["a", "b", "y", "c"]) == pytest.approx(3 / 4)
    # Runs in common: 我, 爱, 我爱; the longer text has 5 + 4 + 3 + 2 of them.
    assert gleu(ours, theirs) == pytest.approx(3 / 14)


@given(st.lists(st.sampled_from(["a", "b", "你"]), min_size=1, max_size=8))
def test_a_text_overlaps_with_itself(words: list[str]) -> None:
    for score in (bleu(words, [words]), gleu(words, words), rouge_n(words, words), rouge_l(words, words)):
        assert score == pytest.approx(1)


def test_checks_and_thresholds() -> None:
    assert grade("bleu", ["别的", "今天天气很好"], "今天天气很好。").passed
    assert grade("rouge", "今天天气很好", "明天下雨", threshold=0.3).passed is False
    assert grade("rouge", "a b c", "a b c", variant="l").score == 1
    assert grade("rouge", "a b c", "a b c", n=2).score == 1
    assert grade("rouge", "a", "a", variant="x").passed is None
    assert grade("f1", "the quick fox", "quick fox").score == pytest.approx(0.8)
    assert grade("gleu", "a b", "a b").passed
    assert grade("f1", "👍", "👍").score == 1
    assert grade("f1", "👍", "👎").score == 0
    assert grade("bleu", None, "a").passed is None
    assert grade("bleu", "a", "a", threshold="high").passed is None


def test_levenshtein() -> None:
    found = grade("levenshtein", "kitten", "sitting", threshold=3)
    assert found.passed and found.score == pytest.approx(1 - 3 / 7)
    assert grade("levenshtein", "kitten", "sitting", threshold=2).passed is False
