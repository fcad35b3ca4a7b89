"""The text in the bytes of a file, whatever its encoding: whole, or not at all."""

from __future__ import annotations

import codecs
import re
from collections import Counter

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The mark of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"<(?:meta|\?xml)\s[^>]{0,300}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_MAY_BE_DECLARED = re.compile(r"(iso8859|cp|koi8|gb|big5|shift_jis|euc|mac|tis|johab)[-_\w]*")
_WIDER = {
    # What browsers read for the narrower name.
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"},
    **{"shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"},
}
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_USUAL = re.compile(r"[\t\n\r -~\u00a0-\u024f\u2010-\u203a\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
_SAMPLE = 100_000
_SIGNS = frozenset("\u00a0¡¢£§©ª«®°±²³´µ·¹º»¼½¾¿×÷€‚„…†‡‰‹‘’“”•–—™›")
"""What stands in Latin texts beside letters."""
_LATIN_WORD = re.compile("[A-Za-zÀ-ÖØ-öø-ÿŠŽŒšžœŸ]+")
_UNLATIN = re.compile("[\x00-\x08\x0e-\x1f]|[A-Za-zÀ-ÿ][¡£¥¹³¼¾¿±][A-Za-zÀ-ÿ]")
"""Controls, and signs inside of words, which are letters in other encodings."""


class Unreadable(Exception):
    """A document that cannot be read, and why. With `may_change` the cause is not the file, so it is tried again."""

    def __init__(self, reason: str, may_change: bool = False) -> None:
        super().__init__(reason)
        self.may_change = may_change


def decode(content: bytes, is_html: bool = False) -> str:
    """The text in the bytes of a file. Raises Unreadable."""
    text = _decode_any(content, is_html)
    # Only an old Mac ends lines so, and whoever counts lines by "\n" would see a single one.
    return text if "\n" in text else text.replace("\r", "\n")


def _decode_any(content: bytes, is_html: bool) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            text = _decode_strictly(content, encoding)
            break
    else:
        text = _without_mark(content) if b"\0" in content else _of_bytes(content, is_html)
    if text is None:
        raise Unreadable(f"is in no encoding that is known{_where(content)}. Save it as UTF-8")
    return text


def _of_bytes(content: bytes, is_html: bool) -> str | None:
    if (text := _decode_strictly(content, "utf-8")) is not None:
        return text
    if is_html and (text := _as_declared(content)) is not None:
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


def _where(content: bytes) -> str:
    """What keeps a text from being UTF-8, and where."""
    if b"\0" in content:
        return ": it has zero bytes, so it may be no text"
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f": line {line} is not UTF-8"
    return ""


def _without_mark(content: bytes) -> str | None:
    """UTF-16 that does not say so. Any bytes are some text in it, so only the usual characters count."""
    is_big = content[0::2].count(0) > content[1::2].count(0)
    text = _decode_strictly(content, "utf-16-be" if is_big else "utf-16-le")
    sample = (text or "")[:_SAMPLE]
    return text if len(_USUAL.findall(sample)) >= 0.95 * len(sample) else None


def _as_declared(content: bytes) -> str | None:
    """The text of a page in the encoding that it names."""
    declared = _DECLARED.search(content[:4096])
    try:
        name = codecs.lookup(declared[1].decode("ascii")).name if declared else ""
    except (LookupError, UnicodeError):
        return None
    name = _WIDER.get(name, name)
    return _decode_strictly(content, name) if _MAY_BE_DECLARED.fullmatch(name) else None


def _is_chinese(text: str) -> bool:
    """Whether a text read as GB18030 is made of its common characters: almost any bytes are some of the others."""
    counted = Counter("".join(_FOREIGN.findall(text))[:_SAMPLE])
    leads: Counter[int] = Counter()
    for char, count in counted.items():
        leads[_lead(char)] += count
    common = sum(count for lead, count in leads.items() if 0xA1 <= lead <= 0xA3 or 0xB0 <= lead <= 0xD7)
    # Korean in its old encoding is common characters too, but only of the first half.
    late = sum(count for lead, count in leads.items() if 0xC9 <= lead <= 0xD7)
    return common >= 0.9 * leads.total() and (leads.total() < 20 or late >= 0.1 * common)


def _lead(char: str) -> int:
    """The row of a character in GB 2312, where the common ones stand together; 0 for one that is not there."""
    try:
        return char.encode("gb2312")[0]
    except UnicodeEncodeError:
        return 0


def _is_broken_utf8(content: bytes) -> bool:
    """Whether most of what is no ASCII is UTF-8 all the same."""
    text = content.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    return sum(map(len, _FOREIGN.findall(text))) - bad > bad


def _is_latin(text: str) -> bool:
    """Whether letters with accents stand as in Latin texts: alone or among plain ones, not in rows of their own."""
    foreign = "".join(_FOREIGN.findall(text))
    fitting = sum(char in _SIGNS for char in foreign)
    for word in _LATIN_WORD.findall(text):
        accents = 0 if word.isascii() else sum(map(len, _FOREIGN.findall(word)))
        fitting += accents if len(word) == 1 or accents <= 2 * (len(word) - accents) else 0
    fitting -= len(_UNLATIN.findall(text))
    return fitting >= 0.9 * len(foreign)
