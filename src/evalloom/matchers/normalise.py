"""One way of writing: full width, case, blanks, and Chinese numerals as Arabic ones."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal

from evalloom.core.lazy import lazy_pattern

_DIGITS = dict(zip("〇零一二三四五六七八九两", (0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2), strict=True))
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_LARGEST = 10**20
_FORMAL = str.maketrans("壹贰叁肆伍陆柒捌玖拾佰仟萬億兩貳參陸", "一二三四五六七八九十百千万亿两二三六")
_NUMERAL = lazy_pattern(r"[〇零一二三四五六七八九两十百千万亿]+")
_PERCENT = lazy_pattern(r"百分之(\d+(?:\.\d+)?)")
_POINT = lazy_pattern(r"(?<=\d)点(?=\d)")
_LARGE = lazy_pattern(r"(?<!\d)((?:\d+(?:\.\d+)?\s?(?:[百千](?![克米瓦卡伏赫帕焦])|[万亿]){1,2})+)(\d*)")
"""Digits with their units (3千, 2百万, 3万5); 千 before a unit of measure is a kilo, which stays."""
_WITH_UNIT = lazy_pattern(r"(\d+(?:\.\d+)?)\s?([百千万亿]+)")
_WRITTEN = lazy_pattern(r"[〇零一二三四五六七八九两十百千万亿]+(?:点[〇零一二三四五六七八九]+)?")
_COUNTED = lazy_pattern(
    r"\s*(?:[个只条件人名位元块角年月日天号周岁次倍点分秒度米克斤吨升里页章本台辆张份项步组间家座棵头匹双对套层楼班届期%]"
    r"|小时|公里|公斤|千克|千米|平方|立方|毫|厘|美元|[^\w\s]|$)"
)
"""What follows a single Chinese numeral that is a number: a measure word, a unit, or the end of a clause."""
_IN_WORDS = lazy_pattern(r"[第唯其统专单]$")
_VERY = lazy_pattern(r"十分(?![钟之]|[^\w]|$)")
_SEPARATOR = lazy_pattern(r"(?<=\d),(?=\d{3}(?!\d))")
_BLANKS = lazy_pattern(r"\s+")
_BESIDE_CJK = lazy_pattern(r"(?<=[\u3040-\u30ff\u3400-\u9fff]) | (?=[\u3040-\u30ff\u3400-\u9fff])")


def normalise(text: str, keeps_punctuation: bool = True) -> str:
    """Return a text in half width and lower case, with single spaces, and with numbers in Arabic digits."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = arabic(text)
    if not keeps_punctuation:
        text = "".join(" " if unicodedata.category(char)[0] == "P" and char != "%" else char for char in text)
    return _BESIDE_CJK.sub("", _BLANKS.sub(" ", text).strip())


def arabic(text: str) -> str:
    """Write Chinese numerals, 万 and 亿, and numbers with thousands separators in plain digits."""
    if not text.isascii():
        text = text.translate(_FORMAL)
        text = _POINT.sub(".", _NUMERAL.sub(_digits, text))
        text = _PERCENT.sub(r"\1%", in_plain_digits(text))
    return _SEPARATOR.sub("", text)


def in_plain_digits(text: str) -> str:
    """Write out numbers in Arabic digits: no thousands separators, no 3千, 2百万 or 3万5."""
    text = _SEPARATOR.sub("", text)
    return text if text.isascii() else _LARGE.sub(_multiplied, text)


def numerals_in(text: str) -> list[float]:
    """Return the numbers in Chinese numerals; a single numeral may be part of a word."""
    text = text.translate(_FORMAL)
    found = [one for one in _WRITTEN.finditer(text) if _is_number(one)]
    values = [_value(one[0]) for one in found]
    return [value for value in values if value is not None]


def _is_number(match: re.Match[str]) -> bool:
    if len(match[0]) > 1:
        return True
    text, start, end = match.string, match.start(), match.end()
    is_word = _IN_WORDS.search(text[max(0, start - 1) : start]) or _VERY.match(text, start)
    return not is_word and (text[max(0, start - 2) : start] == "分之" or _COUNTED.match(text, end) is not None)


def _value(written: str) -> float | None:
    whole, _, decimals = written.partition("点")
    value = numeral(whole)
    if value is None or not decimals:
        return value
    return float(f"{value}.{''.join(str(_DIGITS[char]) for char in decimals)}")


def _digits(match: re.Match[str]) -> str:
    if all(char in _DIGITS for char in match[0]):
        return "".join(str(_DIGITS[char]) for char in match[0])
    value = numeral(match[0])
    return match[0] if value is None else str(value)


def _multiplied(match: re.Match[str]) -> str:
    total = unit = Decimal(0)
    for number, signs in _WITH_UNIT.findall(match[1]):
        unit = Decimal(math.prod(_UNITS[sign] for sign in signs))
        total += Decimal(number) * unit
    rest = Decimal(match[2] or 0)
    # 3万5 is 35,000, as it is said; 3万5000 is the same in full.
    total += rest * unit / 10 if len(match[2]) == 1 else rest
    return f"{total.normalize():f}"


def numeral(text: str) -> int | None:
    """Return the number in Chinese numerals: 一百二十三 is 123; None if it is not one (千万, 万一)."""
    if not text or all(char in _DIGITS for char in text):
        return int("".join(str(_DIGITS[char]) for char in text)) if text else None
    total = section = digit = 0
    for char in text:
        if char in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[char]
        elif char == "十":
            # 十五 is fifteen: the ten needs no one before it.
            section, digit = section + (digit or 1) * 10, 0
        elif char in "百千" and digit:
            section, digit = section + digit * _UNITS[char], 0
        elif char in "万亿" and section + digit + (total if char == "亿" else 0):
            section += digit
            total = total + section * 10_000 if char == "万" else (total + section) * 100_000_000
            section = digit = 0
        else:
            return None
        if total > _LARGEST:
            return None
    is_short = digit and text[-2] in "百千万亿"
    # 一百五 is 150; 105 has a zero in it.
    return total + section + (digit * _UNITS[text[-2]] // 10 if is_short else digit)
