"""Tokenizes texts and queries for search: Latin words, numbers, names, Chinese words, and pairs of kana."""

from __future__ import annotations

import struct
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from evalloom.core.lazy import lazy_pattern

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3041-\u3096\u309d-\u30ff\u3130-\u318f\uac00-\ud7af"
"""Thai, Lao, Burmese, Hangul, Khmer and kana: scripts without spaces, or with suffixes on the word."""
_MARKED = "\u0711\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0966-\u0dff\u0f3e-\u0f84\u0f86-\u0fbc"
"""Scripts of India, Tibet and others, whose vowel signs are marks that `\\w` does not match."""
_LETTER = rf"(?:[^\W_{_HAN}{_UNSPACED}]|[{_MARKED}])"
# ASCII letters are letters too; they are named because most are, and the set of all letters takes ten times as long.
_WORD = rf"(?:[A-Za-z0-9]++|{_LETTER})(?:[A-Za-z0-9]++|{_LETTER}|[\u0300-\u036f])*"
_RUN = lazy_pattern(rf"({_WORD}(?:[-._'’:@+&]{_WORD})*)|([{_HAN}]+)|([{_UNSPACED}]+)")
_ASCII_NAME = lazy_pattern(r"[A-Za-z0-9]++(?:[-._':@+&][A-Za-z0-9]++)*")
_JOINT = lazy_pattern(r"[-._'’:@+&]")
_UNWRITTEN = lazy_pattern(
    "[\u00ad\u200c\u200d\u2060\ufeff\u0591-\u05bd\u05bf\u05c1-\u05c7\u0640\u064b-\u065f\u0670\u06d6-\u06ed]"
)
"""Optional characters of a word: soft breaks, joiners, vowels of Arabic and Hebrew."""

_FUNCTION_WORDS = """
a an and are as at be by can do does for from had has have how i if in is it its me my of on or our should so that the
their there they this to was we what when where which who will with would you your s t ll re ve
的 了 是 在 和 与 及 或 吗 呢 吧 啊 呀 么 我 你 您 他 她 它 我们 你们 他们 这 那 就 都 也 还 要 能 会 可以 什么 怎么
怎样 如何 多少 哪些 哪个 请问 一个
"""
_OWNERS = ("'s", "’s", "'S", "’S")
_STOP = frozenset(_FUNCTION_WORDS.split())
"""Stop words: they occur in almost any text, and take most of the time of a query."""


def words(text: str) -> list[str]:
    """The words of a text without stop words, with repetitions; Chinese words come last."""
    return _tokenize(text, _STOP)


class CountedWords(NamedTuple):
    """The distinct words of a text, one per line, and how often each occurs, as 32-bit numbers."""

    text: str
    counts: bytes


def counted_words(text: str) -> CountedWords:
    """Count the words of a text; the first to occur comes first."""
    counts = Counter(words(text))
    return CountedWords("\n".join(counts), struct.pack(f"<{len(counts)}i", *counts.values()))


def query_words(query: str) -> list[str]:
    """The words of a query; a query of stop words only keeps them."""
    return words(query) or _tokenize(query, frozenset())


def _tokenize(text: str, stop_words: frozenset[str]) -> list[str]:
    tokens: list[str] = []
    if text.isascii():
        for name in _ASCII_NAME.findall(text):
            tokens += _words_of_name(name, stop_words)
        return tokens
    han: list[str] = []
    for name, run, unspaced in _RUN.findall(_UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))):
        if name:
            tokens += _words_of_name(name, stop_words)
        elif run:
            han.append(run)
        else:
            tokens += [unspaced[at : at + 2] for at in range(len(unspaced) - 1)] or [unspaced]
    if han:
        tokens += [word for word in _chinese(han) if word not in stop_words]
    return tokens


@lru_cache(maxsize=1 << 16)
def _words_of_name(name: str, stop_words: frozenset[str]) -> tuple[str, ...]:
    """A plain word; or a name such as `PRO-2026`, in parts and whole. `IT` in capitals is not a stop word."""
    if name.endswith(_OWNERS):
        name = name[:-2]
    # Casefolding a Turkish capital I leaves its dot as a combining mark.
    whole = name.casefold().replace("i\u0307", "i")
    parts = _JOINT.split(whole)
    is_name = [len(part) > 1 and part.isupper() for part in _JOINT.split(name)]
    tokens = [
        _singular(part) for part, is_kept in zip(parts, is_name, strict=True) if is_kept or part not in stop_words
    ]
    return (*tokens, whole) if len(parts) > 1 else tuple(tokens)


def _singular(word: str) -> str:
    """The singular of an English plural: entries -> entry, devices -> device; not `class`, `status`."""
    if len(word) < 4 or not word.endswith("s") or not word.isascii() or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1]


def _chinese(runs: list[str]) -> list[str]:
    """Dictionary words, shorter words inside long ones, and every character.

    Segmentation depends on context (带薪|年|假, but 年假), and people shorten words: characters match what words miss.
    """
    from rjieba import cut_for_search  # deferred: the dictionary takes a tenth of a second to load

    # One call for all runs; a line break keeps them apart.
    tokens = [word for word in cut_for_search("\n".join(runs)) if len(word) > 1]
    tokens.extend("".join(runs))
    return tokens
