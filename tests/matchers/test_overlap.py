"""Overlap of texts, by hand."""

import math
import unicodedata
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


@pytest.mark.parametrize(
    "text", ["हिन्दी भाषा", "தமிழ் மொழி", "naïve café", unicodedata.normalize("NFD", "naïve café"), "می\u200cرسد خوب"]
)
def test_combining_marks_belong_to_their_word(text: str) -> None:
    assert len(words_of(text)) == 2
    assert grade("word_count", 2, text).passed


def test_an_emoji_is_no_word() -> None:
    assert words_of("❤️👩\u200d👩 hi x² ½") == ["hi", "x²", "½"]


# sacrebleu 2.6.0: sentence_bleu(candidate, [reference], tokenize="none").score / 100
BLEU = [
    ("cat", "cat", 1.0),
    ("cat", "dog", 0.0),
    ("the cat", "the dog", 0.5),
    ("b a", "a b", 0.7071067811865478),
    ("a", "a b c", 0.13533528323661276),
    ("the cat sat", "the cat stood", 0.5503212081491042),
    ("a b c", "a b c d e f g", 0.2635971381157268),
    ("a a a a", "a b", 0.1597357760615681),
    ("a b c d", "d c b a", 0.2259005009024613),
    ("a b c d e f g", "a b c", 0.24446151121745052),
    ("a b c d e f g h", "a b x d e f y h", 0.27054113452696993),
    ("the cat sat on", "the cat sat on the mat", 0.6065306597126336),
]


@pytest.mark.parametrize(("candidate", "reference", "score"), BLEU)
def test_bleu_is_that_of_sacrebleu(candidate: str, reference: str, score: float) -> None:
    assert bleu(candidate.split(), [reference.split()]) == pytest.approx(score)
    assert bleu(words_of(candidate), [["else"], words_of(reference)]) >= score - 1e-9


def test_bleu_by_hand() -> None:
    # 1-grams 3/4, 2-grams 2/3, 3-grams 1/2; no 4-gram of one matches, which counts half; both have four words.
    expected = (3 / 4 * 2 / 3 * 1 / 2 * 0.5 / 1) ** 0.25
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


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in ("f1", "rouge", "bleu", "gleu", "iequals", "normalised")),
        *((kind, {}) for kind in ("contains", "icontains", "contains_any", "starts_with", "ends_with")),
        *(("levenshtein", {"threshold": 0}), ("equals", {"normalise": True}), ("one_of", {"normalise": True})),
    ],
)
def test_composed_and_decomposed_letters_are_the_same(kind: str, options: dict[str, Any]) -> None:
    text, other = "naïve café", "dégoûté"
    wrap = (lambda expected: [expected]) if kind == "one_of" else str
    assert grade(kind, wrap(text), unicodedata.normalize("NFD", text), **options).passed
    assert grade(kind, wrap(unicodedata.normalize("NFD", other)), "degoute", **options).passed is False


def test_equals_is_exact_and_says_so() -> None:
    found = grade("equals", "café", unicodedata.normalize("NFD", "café"))
    assert found.passed is False and "composed in another way; normalise: true" in found.reason


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
