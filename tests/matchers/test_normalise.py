"""One way of writing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.matchers.normalise import normalise, numeral

DIGITS = "零一二三四五六七八九"


def written(number: int) -> str:
    """A number below ten thousand as a careful writer puts it."""
    text, is_gap = "", False
    for power, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // power % 10
        if digit:
            text += ("零" if is_gap and text else "") + DIGITS[digit] + unit
        is_gap = not digit
    return text or "零"


@given(st.integers(1, 9_999), st.integers(0, 9_999))
def test_numerals_are_read_as_they_are_written(low: int, high: int) -> None:
    assert numeral(written(low)) == low
    assert numeral(f"{written(high)}万" if high else written(low)) == (high * 10_000 or low)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("十五", 15), ("一百五", 150), ("一百零五", 105), ("二〇二四", 2024), ("三亿二千万", 320_000_000)),
        *(
            ("一万亿", 10**12),
            ("两千", 2000),
            ("千万", None),
            ("一" + "亿" * 900, None),
            ("万一", None),
            ("百一", None),
        ),
    ],
)
def test_numerals(text: str, number: int | None) -> None:
    assert numeral(text) == number


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("１２３ＡＢＣ", "123abc"),
        ("一百二十三", "123"),
        ("壹佰贰拾叁", "123"),
        ("1,234,567", "1234567"),
        ("12万", "十二万"),
        ("百分之五十", "50%"),
        ("三点一四", "3.14"),
        ("  a \n b ", "A b"),
        ("你 好", "你好"),
    ],
)
def test_ways_of_writing(text: str, same: str) -> None:
    assert normalise(text) == normalise(same)


def test_punctuation() -> None:
    assert normalise("你好，世界！", keeps_punctuation=False) == normalise("你好世界", keeps_punctuation=False)
    assert normalise("a-b") == "a-b"
