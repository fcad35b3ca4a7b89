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
_LONGEST = 300
"""More digits than a float can hold."""
_TRADITIONAL = str.maketrans("萬億兩負幾數", "万亿两负几数")
_FORMAL = str.maketrans("壹贰貳叁參肆伍陆陸柒捌玖拾佰仟", "一二二三三四五六六七八九十百千")
_CHEQUE = lazy_pattern(
    r"(?<![大登内着队隊])[壹贰貳叁參肆伍陆陸柒捌玖](?:[壹贰貳叁參肆伍陆陸柒捌玖拾佰仟零万亿]+|(?=[元圆圓角分]))"
)
"""Numerals as on a cheque. Most are also parts of words (大陆, 队伍, 收拾), so that one alone needs its money."""
_WRITTEN = lazy_pattern(
    r"[〇零一二三四五六七八九两十百千万亿]+(?:点[〇零一二三四五六七八九]++(?![十分刻])[万亿]{0,2})?"
)
"""A numeral with its decimals; 三点五分 and 三点二十 are times."""
_COUNTED = lazy_pattern(
    r"\s*(?:[个個只隻条條件人名位元块塊角年月日天号號周岁歲次倍点點分秒度米克斤吨噸升里页頁章本台辆輛张張份项項步组組间間家座棵头"
    r"匹双雙对對套层層楼班届期种種颗顆粒片杯瓶袋盒箱碗盘盤根支枚篇首部场場段艘架款批笔筆级級%]"
    r"|小时|小時|公里|公斤|千克|千米|平方|立方|毫|厘|美元|等于|等於|[^\w\s]|$"
    r"|[加减減乘除到至或和与與比]负?[\d〇零一二三四五六七八九两十])"
)
"""What follows a single Chinese numeral that is a number: a measure word, a unit, a sum, or the end of a clause."""
_WORDS = lazy_pattern(
    r"十分(?![钟鐘之]|[^\w]|$)|(?<![午晨夜])(?<!晚上)(?<!早上)一点(?![钟鐘整半〇零一二三四五六七八九十两])|一度(?!电)|一次性|一本正|一分为|三角|一[家对]人"
)
"""Words that begin like a number with a measure word: very, a little, once, serious."""
_WORD_BEFORE = lazy_pattern(r"[唯其统統专專单單]$")
_FEW = lazy_pattern(r"[几数]$")
_MINUS = lazy_pattern(r"(?<![胜勝自担擔肩背抱辜欺身承重\d〇零一二三四五六七八九两十])负(?:[百千]分之)?$")
_NEGATIVE = lazy_pattern(
    r"(?<![胜勝自担擔肩背抱辜欺身承重\d〇零一二三四五六七八九两十])负(?=\d)"
    r"|零下\s?(?=\d+(?:\.\d+)?\s?(?:度|°|℃|[摄攝华華]氏))"
)
_DEGREES = lazy_pattern(r"\s?(?:度|°|℃|[摄攝华華]氏)")
_PERCENT = lazy_pattern(r"([百千])分之(负?\d+(?:\.\d+)?)")
_FRACTION = lazy_pattern(r"(?<![\d.])(\d+)分之(\d+)(?![\d.])")
_KILO = "克瓦卡伏赫帕焦"
_LARGE = lazy_pattern(r"(?<!\d)((?:\d+(?:\.\d+)?\s?[百千万亿]{1,2})+)(\d*)")
_LARGE_BUT_KILO = lazy_pattern(
    rf"(?<!\d)((?:\d+(?:\.\d+)?\s?(?:[百千](?![{_KILO}米])|[万亿]){{1,2}})+)(\d*)",
)
"""Digits with their units (3千, 2百万, 3万5); 千 before a unit of measure is a kilo, which stays."""
_WITH_UNIT = lazy_pattern(r"(\d+(?:\.\d+)?)\s?([百千万亿]+)")
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
    """Write Chinese numerals, 万 and 亿, percentages, signs, and numbers with thousands separators in plain digits."""
    if not text.isascii():
        text = _WRITTEN.sub(_in_digits, _simplified(text))
        # 3千克 and 三千克 both become 3000克.
        text = _LARGE.sub(_multiplied, _SEPARATOR.sub("", text))
        text = _PERCENT.sub(lambda match: match[2] + ("%" if match[1] == "百" else "‰"), text)
        text = _FRACTION.sub(r"\2/\1", text)
        text = _NEGATIVE.sub("-", text)
    return _SEPARATOR.sub("", text)


def in_plain_digits(text: str) -> str:
    """Write out numbers in Arabic digits: no thousands separators, no 3千, 2百万 or 3万5, and 负5 as -5."""
    text = _SEPARATOR.sub("", text)
    return text if text.isascii() else _NEGATIVE.sub("-", _LARGE_BUT_KILO.sub(_multiplied, text))


def numerals_in(text: str) -> list[float]:
    """Return the numbers in Chinese numerals, as far as they are certain: a numeral may be part of a word."""
    text = _simplified(text)
    numbers: list[float] = []
    end = 0
    for match in _WRITTEN.finditer(text):
        if not _is_number(match) or (value := _value(match)) is None:
            continue
        start = match.start()
        if numbers and numbers[-1] and text[end:start] == "分之":
            value /= numbers.pop()
        is_below = text.endswith("零下", 0, start) and _DEGREES.match(text, match.end())
        is_negative = is_below or _MINUS.search(text, max(0, start - 5), start)
        numbers.append(-value if is_negative else value)
        end = match.end()
    return numbers


def _simplified(text: str) -> str:
    text = text.translate(_TRADITIONAL).replace("百分之百", "百分之一百")
    return _CHEQUE.sub(lambda match: match[0].translate(_FORMAL), text)


def _is_number(match: re.Match[str], ordinals: bool = False) -> bool:
    """Return whether a numeral is certainly a number: not 七八个, 三三两两, 几十, 一切 or 十分."""
    text, start, end = match.string, match.start(), match.end()
    whole, _, decimals = match[0].partition("点")
    is_beside_digits = text[max(0, start - 1) : start].isdecimal() or text[end : end + 1].isdecimal()
    if is_beside_digits or _FEW.search(text, max(0, start - 1), start):
        return False
    if decimals:
        return not (match[0] == "一点一" and text[end : end + 1] in ("点", "滴"))
    if len(whole) == 1:
        if text[max(0, start - 1) : start] == "第":
            return ordinals
        if _WORD_BEFORE.search(text, max(0, start - 1), start) or _WORDS.match(text, start):
            return False
        return text[max(0, start - 2) : start] == "分之" or _COUNTED.match(text, end) is not None
    if not all(char in _DIGITS for char in whole):
        return True
    if "两" in whole or len(whole) > 2 or whole[0] in "〇零" or whole[1] in "〇零":
        return "两" not in whole
    # 七八个 is seven or eight, and 三五天 a few days.
    is_about = _DIGITS[whole[1]] == _DIGITS[whole[0]] + 1 or whole == "三五"
    return not is_about and _COUNTED.match(text, end) is not None


def _value(match: re.Match[str]) -> float | None:
    whole, point, _ = match[0].partition("点")
    if point:
        try:
            value = float(in_plain_digits(_in_digits(match)))
        except ValueError:  # 千点五 is not a number
            return None
        return value if math.isfinite(value) else None
    if len(whole) > 1 and whole[-1] == "千" and match.string[match.end() : match.end() + 1] in tuple(_KILO):
        whole = whole[:-1]
    return numeral(whole)


def _in_digits(match: re.Match[str]) -> str:
    if not _is_number(match, ordinals=True):
        return match[0]
    whole, point, decimals = match[0].partition("点")
    is_spelled = all(char in _DIGITS for char in whole)
    value = "".join(str(_DIGITS[char]) for char in whole) if is_spelled else numeral(whole)
    if value is None:
        return match[0]
    # 两点五亿 keeps its 亿.
    return f"{value}{'.' if point else ''}{''.join(str(_DIGITS.get(char, char)) for char in decimals)}"


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
    if not text or len(text) > _LONGEST:
        return None
    if all(char in _DIGITS for char in text):
        return int("".join(str(_DIGITS[char]) for char in text))
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
