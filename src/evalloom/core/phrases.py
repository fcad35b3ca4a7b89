"""Finds a phrase in a text, but never a number inside a longer one (RAG-8)."""

from __future__ import annotations

import unicodedata
from typing import Literal

Found = Literal["yes", "in a longer number", "no"]
_SEPARATORS = ".,"


def plain_width(text: str) -> str:
    """Return a text in NFKC, in which full-width characters are the usual ones."""
    return unicodedata.normalize("NFKC", text)


def contains_phrase(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase, after NFKC: `8 days` is not in `38 days`, `3.8 days` or `1,008 days`."""
    return find_phrase(plain_width(text), plain_width(phrase)) == "yes"


def find_phrase(text: str, phrase: str) -> Found:
    """Look for a phrase in a text that `plain_width` returned, as it did the phrase."""
    start = text.find(phrase)
    found: Found = "no" if start < 0 else "in a longer number"
    while start >= 0:
        if not (_continues_before(text, start) or _continues_after(text, start + len(phrase))):
            return "yes"
        start = text.find(phrase, start + 1)
    return found


def phrase_places(text: str, phrase: str) -> list[tuple[int, int]]:
    """Return where a text contains a phrase, as `contains_phrase` finds it: offsets in the text as it is."""
    plain, offsets = [], []
    for at, character in enumerate(text):
        widened = plain_width(character)
        plain.append(widened)
        offsets += [at] * len(widened)
    offsets.append(len(text))
    searched, wanted = "".join(plain), plain_width(phrase)
    places: list[tuple[int, int]] = []
    start = searched.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        if not (_continues_before(searched, start) or _continues_after(searched, end)):
            # The last character may have been one that NFKC makes several of.
            places.append((offsets[start], offsets[end - 1] + 1))
        start = searched.find(wanted, end)
    return places


def _continues_before(text: str, start: int) -> bool:
    """Whether the digit at `start` belongs to a number that begins before it."""
    if start == 0 or not _is_digit(text, start):
        return False
    return _is_digit(text, start - 1) or (text[start - 1] in _SEPARATORS and _is_digit(text, start - 2))


def _continues_after(text: str, end: int) -> bool:
    """Whether the digit before `end` belongs to a number that ends after it."""
    if end >= len(text) or not _is_digit(text, end - 1):
        return False
    return _is_digit(text, end) or (text[end] in _SEPARATORS and _is_digit(text, end + 1))


def _is_digit(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isdecimal()
