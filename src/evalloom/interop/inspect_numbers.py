"""Reads a word as a number where Inspect does: `-5`, `1e3`, `２½`, `3²`, `Ⅻ`, `十二`, `三点五`."""

from __future__ import annotations

import math
import unicodedata
from itertools import takewhile

_MINUS, _PLUS = "-−﹣－负負", "+＋﹢正"
_GROUPS = "，﹐、٬'’ʼ＇"
_POINTS = ".٫．"
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_DIGITS = {
    sign: digit
    for digit, signs in enumerate(
        ("零〇○", "一壹幺", "二贰貳两兩", "三叁參", "四肆", "五伍", "六陆陸", "七柒", "八捌", "九玖")
    )
    for sign in signs
}
_TENS = {"廿": 20, "卅": 30, "卌": 40}
_SMALL = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_LARGE = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_CHINESE_POINTS = "点點．."
_CHINESE = frozenset([*_DIGITS, *_TENS, *_SMALL, *_LARGE, *"点點负負正"])


def number_in(word: str) -> float | None:
    """Return the finite number that a word is; None if it is none."""
    for read in (float, _any_script):
        try:
            number = read(word)
        except (ValueError, OverflowError, ZeroDivisionError):
            continue
        if number is not None and math.isfinite(number):
            return number
    return None


def _any_script(word: str) -> float | None:
    text = word.strip()
    if not text:
        return None
    sign = 1
    while text and text[0] in _MINUS + _PLUS:
        sign = -sign if text[0] in _MINUS else sign
        text = text[1:].lstrip()
    if len(text) == 1 and (value := unicodedata.numeric(text, None)) is not None:
        return sign * value
    text, power = _split_power(text)
    number = _with_fraction(text)
    if number is None:
        return None
    number *= sign
    return number if power is None else float(number**power)


def _split_power(text: str) -> tuple[str, int | None]:
    """Split `3²` into its base and its power."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in _GROUPS):
        end -= 1
    raised = "".join(takewhile("⁰¹²³⁴⁵⁶⁷⁸⁹".__contains__, reversed(text[:end])))[::-1]
    start = end - len(raised)
    if raised and start and text[start - 1] in "⁻⁺":
        start -= 1
    base = text[:start].rstrip()
    return (base, int(text[start:end].translate(_RAISED))) if raised and base else (text.strip(), None)


def _with_fraction(text: str) -> float | None:
    """Read a number that may end with a fraction of one character, such as `2½`."""
    fractions = [(at, value) for at, sign in enumerate(text) if 0 < (value := unicodedata.numeric(sign, 0)) < 1]
    if not fractions:
        return _whole(text)
    at, value = fractions[0]
    rest = text[at + 1 :]
    if len(fractions) > 1 or any(not (sign.isspace() or sign in _GROUPS) for sign in rest.strip()):
        return None
    head = text[:at].strip()
    before = _whole(head) if head else 0.0
    return None if before is None else before + value


def _whole(text: str) -> float | None:
    text = text.strip()
    if not text:
        return None
    if not _CHINESE.isdisjoint(text) and (number := _chinese(text)) is not None:
        return number
    if (number := _in_digits(text)) is not None:
        return number
    return unicodedata.numeric(text, None) if len(text) == 1 else None


def _digit(sign: str) -> int | None:
    value = unicodedata.decimal(sign, None)
    value = unicodedata.digit(sign, None) if value is None else value
    return _DIGITS.get(sign) if value is None else int(value)


def _in_digits(text: str) -> float | None:
    """Read digits of any script, with a decimal point and an exponent."""
    plain = ""
    previous = ""
    for sign in text:
        if sign in "eE" and plain and "e" not in plain:
            plain += "e"
        elif previous in "eE" and previous and sign in "-−﹣－+＋﹢":
            plain += "+" if sign in "+＋﹢" else "-"
        elif sign in _POINTS and "." not in plain:
            plain += "."
        elif (digit := _digit(sign)) is not None:
            plain += str(digit)
        elif not (sign in _GROUPS or sign.isspace()):
            return None
        previous = sign
    try:
        return float(plain)
    except ValueError:
        return None


def _chinese(text: str) -> float | None:
    point = next((sign for sign in _CHINESE_POINTS if sign in text), "")
    whole, _, decimals = text.partition(point) if point else (text, "", "")
    units = {**_SMALL, **_LARGE, **_TENS}
    number = _in_units(whole) if any(sign in units for sign in whole) else _in_a_row(whole)
    if number is None:
        return None
    share, step = 0.0, 0.1
    for sign in "".join(decimals.split()):
        if (digit := _digit(sign)) is None:
            return None
        share, step = share + digit * step, step / 10
    return float(number) + share


def _in_a_row(text: str) -> int | None:
    digits = [_digit(sign) for sign in "".join(text.split())]
    return None if None in digits else int("".join(map(str, digits)) or "0")


def _in_units(text: str) -> int | None:
    total = section = number = 0
    for sign in "".join(text.split()):
        if sign in _TENS:
            section += _TENS[sign]
        elif sign in _SMALL:
            section, number = section + (number or 1) * _SMALL[sign], 0
        elif sign in _LARGE:
            total, section, number = total + (section + number) * _LARGE[sign], 0, 0
        elif (digit := _digit(sign)) is None:
            return None
        elif sign not in "零〇○":
            number = digit
    return total + section + number
