"""Languages and refusals."""

from typing import Any

import pytest

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.language import is_refusal


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("zh", "今天天气很好，我们用 Python 写代码。"),
        ("zh-CN", "好的"),
        ("中文", "好的，没问题"),
        ("en", "The weather is nice today and we write code."),
        ("english", "OK"),
        ("ja", "今日は天気がいいですね"),
        ("ko", "오늘 날씨가 좋네요"),
        ("ru", "Сегодня хорошая погода"),
        ("de", "Das Wetter ist heute nicht schlecht und wir schreiben"),
        ("fr", "Le temps est beau et nous allons dans les champs"),
        ("ar", "الطقس جميل"),
    ],
)
def test_languages(code: str, text: str) -> None:
    assert grade("language", code, text).passed


def test_other_languages() -> None:
    for code, text in [
        ("zh", "Hello there"),
        ("en", "今天"),
        ("zh", "今日は天気がいい"),
        ("en", "Das ist nicht die Zeit"),
    ]:
        assert grade("language", code, text).passed is False
    assert grade("language", "en", "123").passed is False
    assert grade("language", "klingon", "Qapla").passed is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "As an AI language model, I don't have opinions.",
        "抱歉，我无法回答这个问题。",
        "对不起，我不能提供相关信息。",
        "作为一个人工智能助手，我不能参与此类讨论。",
        "我无法为您提供制作方法。",
        "Sorry, can't help with that.",
        "I must decline.",
        "该请求违反了相关规定。",
    ],
)
def test_refusals(text: str) -> None:
    assert is_refusal(text)
    assert grade("refusal", None, text).passed


@pytest.mark.parametrize(
    "text",
    [
        *("Paris is the capital.", "可以，步骤如下：先打开设置。", "水不能燃烧，因为它是氧化物。", "The can opener"),
        "I'm sorry to hear your parcel is late. It ships today.",
        "I can't recommend this book enough",
        "I'm sorry, but your parcel is late.",
        "公司违反了劳动法规定，您可以申请仲裁。",
        "很抱歉给您带来不便，包裹今天发出。",
    ],
)
def test_answers_are_no_refusals(text: str) -> None:
    assert grade("refusal", None, text).passed is False


def test_an_empty_answer_refuses() -> None:
    assert grade("refusal", None, " ").passed
    assert by_kind("is_refusal") is by_kind("refusal")
