"""One way of writing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.matchers.normalise import normalise, numeral, numerals_in

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
        ("百分之百", "100%"),
        ("百分之负五", "-5%"),
        ("负百分之三点五", "-3.5%"),
        ("千分之三", "3‰"),
        ("三分之一", "1/3"),
        ("负五度", "-5度"),
        ("负5度", "-5度"),
        ("零下五度", "-5度"),
        ("零下 3.5℃", "-3.5℃"),
        ("三千克", "3千克"),
        ("三千克", "3000克"),
        ("三千米", "3千米"),
        ("两点五亿", "2.5亿"),
        ("一万二", "12000"),
        ("两千零五", "2005"),
        ("三萬兩千", "32000"),
        ("伍元整", "5元整"),
        ("二〇二四年五月三日", "2024年5月3日"),
        ("第三章", "第3章"),
        ("三种方法，五颗星", "3种方法，5颗星"),
        ("三加五等于八", "3加5等于8"),
        ("下午一点三十分", "下午1点30分"),
        ("十分钟", "10分钟"),
        ("  a \n b ", "A b"),
        ("你 好", "你好"),
    ],
)
def test_ways_of_writing(text: str, same: str) -> None:
    assert normalise(text) == normalise(same)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "三心二意",
            "一五一十",
            "三三两两",
            "乱七八糟",
            "十全十美",
            "一点一滴",
            "不管三七二十一",
            "五一劳动节",
            "三角形",
        ),
        *(
            "一切",
            "一点都不",
            "十分好",
            "唯一",
            "统一。",
            "万一",
            "千万",
            "一半",
            "半天",
            "四川",
            "二维码",
            "大陆",
            "队伍",
            "收拾",
        ),
        *("七八个", "两三天", "三五个", "几十人", "数十万", "十多个", "零下五六度", "三胜二负五平", "负责"),
    ],
)
def test_words_and_vague_numbers_stay(text: str) -> None:
    assert normalise(text) == text
    assert numerals_in(text) == []


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(("七八个", "78个"), ("两三天", "23天"), ("三点五分", "3.5分"), ("三点五十分", "3.50分")),
        *(("三负五平", "三-5平"), ("零下五到十度", "-5到10度"), ("自负五十万", "自-500000"), ("三分之一", "3/1")),
    ],
)
def test_what_means_something_else_stays_different(text: str, other: str) -> None:
    assert normalise(text) != normalise(other)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        *(("负五度", [-5]), ("气温零下五度", [-5]), ("负百分之五", [-5]), ("担负三项", [3]), ("三比二", [3, 2])),
        *(
            ("三千克", [3]),
            ("海拔三千米", [3000]),
            ("两点五亿", [250_000_000]),
            ("三分之一", [1 / 3]),
            ("百分之百", [100]),
        ),
        *(("三点五十分", [3, 50]), ("一" * 5000, []), ("千点五", []), ("第一名", [])),
    ],
)
def test_numbers_in_numerals(text: str, numbers: list[float]) -> None:
    assert numerals_in(text) == numbers


@given(st.integers(10, 9_999))
def test_a_number_is_the_same_in_numerals_and_digits(number: int) -> None:
    for sign in ("", "负"):
        assert normalise(f"共{sign}{written(number)}个") == normalise(f"共{sign}{number}个")
        assert numerals_in(f"{sign}{written(number)}个") == [-number if sign else number]


@given(st.text("负零下一二两七八十百千万亿点分之个度克第几5.%壹陆 "))
def test_any_numerals_are_normalised(text: str) -> None:
    assert isinstance(normalise(text), str)
    assert all(math.isfinite(number) for number in numerals_in(text))


def test_punctuation() -> None:
    assert normalise("你好，世界！", keeps_punctuation=False) == normalise("你好世界", keeps_punctuation=False)
    assert normalise("a-b") == "a-b"
