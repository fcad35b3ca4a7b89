"""Detects the encoding of a file and decodes it strictly."""

from __future__ import annotations

import codecs
import re
from collections import Counter

from evalloom.core.lazy import lazy_pattern

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The BOM of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = lazy_pattern(rb"<(?:meta|\?xml)\s[^>]{0,300}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_MAY_BE_DECLARED = lazy_pattern(r"(iso8859|cp|koi8|gb|big5|shift_jis|euc|mac|tis|johab)[-_\w]*")
_WIDER = {
    # The encodings that browsers use for these names.
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"},
    **{"shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"},
}
_FOREIGN = lazy_pattern(r"[^\x00-\x7f]+")
_USUAL = lazy_pattern(r"[\t\n\r -~\u00a0-\u024f\u2010-\u203a\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
_SAMPLE = 100_000
_SIGNS = frozenset("\u00a0¡¢£§©ª«®°±²³´µ·¹º»¼½¾¿×÷€‚„…†‡‰‹‘’“”•–—™›")
"""Signs in Latin texts that are not letters."""
_LATIN_WORD = lazy_pattern("[A-Za-zÀ-ÖØ-öø-ÿŠŽŒšžœŸ]+")
_UNLATIN = lazy_pattern("[\x00-\x08\x0e-\x1f]|[A-Za-zÀ-ÿ][¡£¥¹³¼¾¿±][A-Za-zÀ-ÿ]")
"""Control characters, and signs inside words that are letters in other encodings."""


class UnreadableDocument(Exception):
    """A document that cannot be read, and why. With `may_change` the cause may go away, so it is tried again."""

    def __init__(self, reason: str, may_change: bool = False) -> None:
        super().__init__(reason)
        self.may_change = may_change


def decode(content: bytes, is_html: bool = False) -> str:
    """Decode the bytes of a file. Raises UnreadableDocument."""
    text = _decode_any(content, is_html)
    # Old Mac files end lines with "\r"; counting "\n" would see a single line.
    return text if "\n" in text else text.replace("\r", "\n")


def _decode_any(content: bytes, is_html: bool) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            text = _decode_strictly(content, encoding)
            break
    else:
        text = _decode_utf16(content) if b"\0" in content else _decode_bytes(content, is_html)
    if text is None:
        raise UnreadableDocument(f"is not in a known encoding{_why_not_utf8(content)}. Save it as UTF-8")
    return text


def _decode_bytes(content: bytes, is_html: bool) -> str | None:
    if (text := _decode_strictly(content, "utf-8")) is not None:
        return text
    if is_html and (text := _decode_as_declared(content)) is not None:
        return text
    if (text := _decode_strictly(content, "gb18030")) is not None and _is_chinese(text):
        return text
    if not _is_broken_utf8(content) and (text := _decode_strictly(content, "cp1252")) is not None and _is_latin(text):
        return text
    return None


def _decode_strictly(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeError:
        return None


def _why_not_utf8(content: bytes) -> str:
    """Why a text is not UTF-8: zero bytes, or the first line with an invalid byte."""
    if b"\0" in content:
        return ": it has zero bytes, so it may not be text"
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f": line {line} is not UTF-8"
    return ""


def _decode_utf16(content: bytes) -> str | None:
    """Decode UTF-16 without a BOM; any bytes decode, so most characters must be common ones."""
    is_big = content[0::2].count(0) > content[1::2].count(0)
    text = _decode_strictly(content, "utf-16-be" if is_big else "utf-16-le")
    sample = (text or "")[:_SAMPLE]
    return text if len(_USUAL.findall(sample)) >= 0.95 * len(sample) else None


def _decode_as_declared(content: bytes) -> str | None:
    """Decode a page in the encoding that it declares."""
    declared = _DECLARED.search(content[:4096])
    try:
        name = codecs.lookup(declared[1].decode("ascii")).name if declared else ""
    except (LookupError, UnicodeError):
        return None
    name = _WIDER.get(name, name)
    return _decode_strictly(content, name) if _MAY_BE_DECLARED.fullmatch(name) else None


def _is_chinese(text: str) -> bool:
    """Whether text decoded as GB18030 has mostly common characters; almost any bytes decode to rare ones."""
    counted = Counter("".join(_FOREIGN.findall(text))[:_SAMPLE])
    leads: Counter[int] = Counter()
    for char, count in counted.items():
        # The lead byte is the row in GB 2312, which groups the common characters; rare ones are not in it.
        encoded = char.encode("gb2312", "ignore")
        leads[encoded[0] if encoded else 0] += count
    common = sum(count for lead, count in leads.items() if 0xA1 <= lead <= 0xA3 or 0xB0 <= lead <= 0xD7)
    # Korean in EUC-KR also decodes to common characters, but only to the first half of them.
    late = sum(count for lead, count in leads.items() if 0xC9 <= lead <= 0xD7)
    return common >= 0.9 * leads.total() and (leads.total() < 20 or late >= 0.1 * common)


def _is_broken_utf8(content: bytes) -> bool:
    """Whether most non-ASCII characters are valid UTF-8 although some bytes are not."""
    text = content.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    return sum(map(len, _FOREIGN.findall(text))) - bad > bad


def _is_latin(text: str) -> bool:
    """Whether accented letters occur as in Latin texts: alone or among plain letters, not in runs."""
    foreign = "".join(_FOREIGN.findall(text))
    fitting = sum(char in _SIGNS for char in foreign)
    for word in _LATIN_WORD.findall(text):
        accents = 0 if word.isascii() else sum(map(len, _FOREIGN.findall(word)))
        fitting += accents if len(word) == 1 or accents <= 2 * (len(word) - accents) else 0
    fitting -= len(_UNLATIN.findall(text))
    return fitting >= 0.9 * len(foreign)
