"""Formats texts for people: plurals, quotes, lists of names, shortened texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

CLAMP = 20_000
"""The number of characters that a trace keeps of a request or response."""
_MANY_NAMES = 12
_LONG_NAME = 40
_LONGEST_WORD = 100
"""Comparing words takes time that grows with the square of their length, and no name is this long."""
_LONGEST_INTEGER = 10**18
_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def pluralize(count: int, noun: str) -> str:
    """Return `1 error` or `2,000 errors`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Escape everything that is not a printable character: line breaks, terminal sequences, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, the last of them `…` if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = 100) -> str:
    """Return a text on one line, printable and shortened."""
    return shorten(printable(" ".join(text.split())), limit)


def clamp(text: str, limit: int = CLAMP) -> str:
    """Return the beginning of a text for a trace, and the number of characters left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} characters more)"


def quote(value: object, limit: int = 60) -> str:
    """Return the repr of a value, shortened. A repr has nothing in it that could drive a terminal."""
    if isinstance(value, str) and len(value) > limit:
        # Shorten before quoting, so that the closing quotation mark stays.
        return repr(shorten(value, limit))
    return shorten(repr(value), limit)


def type_name(value: object) -> str:
    """Return the JSON name of a value's type, with its article."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def describe(value: object) -> str:
    """Describe a value that was not expected: texts and numbers as they are, anything else by its type."""
    # A boolean is an int in Python, and a number of a thousand digits does not help the reader.
    if isinstance(value, str | float) or (type(value) is int and abs(value) < _LONGEST_INTEGER):
        return quote(value)
    if value == [] or value == {}:
        return "an empty list" if value == [] else "an empty object"
    return type_name(value)


def list_names(names: Iterable[Any]) -> str:
    """Join the first dozen names, none of them long; `none` if there are none."""
    shown = [str(name)[:_LONG_NAME] for name in names]
    more = f" and {len(shown) - _MANY_NAMES} more" if len(shown) > _MANY_NAMES else ""
    return ", ".join(shown[:_MANY_NAMES]) + more if shown else "none"


def did_you_mean(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the end of a message that suggests the nearest choice; empty if none is near."""
    from difflib import get_close_matches

    matches = get_close_matches(word, list(choices), 1, cutoff) if len(word) <= _LONGEST_WORD else []
    return f". Did you mean {matches[0]!r}?" if matches else ""


def percent(share: float, digits: int = 1) -> str:
    """Format a share: `37.6%`; one that only rounds to 0 or 100 % gives `<0.1%` or `>99.9%`."""
    text, least = f"{100 * share:.{digits}f}", 10**-digits
    if share > 0 and not float(text):
        return f"<{least:g}%"
    return f">{100 - least:g}%" if share < 1 and float(text) == 100 else f"{text}%"
