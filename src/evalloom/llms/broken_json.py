"""JSON as llms write it when they do not quite: read gently, in one pass, and every liberty taken is told."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_DEEPEST = 100
_MOST_VALUES = 20_000
"""How many values are read before the text is given up: about a tenth of a second."""
_BETWEEN = re.compile(r"(?:\s+|//[^\n]*|/\*.{0,2000}?\*/)*", re.DOTALL)
_QUOTED = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_WORD = re.compile(r"[^\W\d][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_CUT_NUMBER = re.compile(r"-?(?:\d+(?:\.|(?:\.\d+)?[eE][-+]?))?\Z")
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_IN_SINGLE = re.compile(r"\\(.)|\"", re.DOTALL)
_LITERALS = {"true": True, "false": False, "null": None}
_OF_PYTHON = {"True": True, "False": False, "None": None}
_CLOSED = "closed the end, which was missing"
_CUT: Any = object()
"""What stands where the text breaks off."""


class Broken(Exception):
    """Not even a gentle reader makes JSON of it."""


class Reader:
    """Reads one object or list from a place in a text; `at` is where it ended, `repairs` what was mended.

    Mended are trailing commas, single quotes, bare keys, Python's literals, comments, line breaks and stray backslashes
    in texts, and an end that is missing.
    """

    def __init__(self, text: str, at: int = 0, budget: int = _MOST_VALUES) -> None:
        self._text = text
        self._depth = 0
        self.at = at
        self.budget = budget
        """How many values may still be read: whoever tries many places hands it on."""
        self._repairs: dict[str, None] = {}

    @property
    def repairs(self) -> list[str]:
        return list(self._repairs)

    def read(self) -> Any:
        """The value that begins here. Raises Broken."""
        value = self._value()
        # A text that breaks off with nothing read, such as "use {", holds no JSON.
        if value is _CUT or (self._is_cut and not value):
            raise Broken
        return value

    def read_all(self) -> Any:
        """The value of the whole text. Raises Broken."""
        value = self.read()
        if not self._is_over():
            raise Broken
        return value

    @property
    def _is_cut(self) -> bool:
        return _CLOSED in self._repairs

    def _mended(self, how: str) -> None:
        self._repairs[how] = None

    def _is_over(self) -> bool:
        """Whether nothing more comes but blanks and comments, which are passed over."""
        match = _BETWEEN.match(self._text, self.at)
        if match:
            self.at = match.end()
            if "/" in match[0]:
                self._mended("left out comments")
        return self.at >= len(self._text)

    def _is_cut_here(self) -> bool:
        if self._is_over():
            self._mended(_CLOSED)
            return True
        return False

    def _takes(self, sign: str) -> bool:
        is_next = self._text.startswith(sign, self.at)
        self.at += is_next
        return is_next

    def _value(self) -> Any:
        self.budget -= 1
        if self.budget < 0 or self._depth > _DEEPEST:
            raise Broken
        if self._is_cut_here():
            return _CUT
        sign = self._text[self.at]
        if sign in "{[":
            self.at += 1
            self._depth += 1
            value: Any = self._object() if sign == "{" else self._list()
            self._depth -= 1
            return value
        return self._quoted(sign) if sign in _QUOTED else self._plain()

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._is_cut_here() or self._takes("}"):
            return found
        while True:
            name = self._name()
            if self._is_cut_here():
                return found
            if not self._takes(":"):
                raise Broken
            value = self._value()
            if value is _CUT:
                return found
            found[name] = value
            if not self._goes_on("}"):
                return found

    def _list(self) -> list[Any]:
        found: list[Any] = []
        if self._is_cut_here() or self._takes("]"):
            return found
        while True:
            value = self._value()
            if value is _CUT:
                return found
            found.append(value)
            if not self._goes_on("]"):
                return found

    def _goes_on(self, end: str) -> bool:
        """Whether another item follows; passes over the comma, or over the end."""
        if self._is_cut_here() or self._takes(end):
            return False
        if not self._takes(","):
            raise Broken
        if self._is_cut_here():
            return False
        if self._takes(end):
            self._mended("removed trailing commas")
            return False
        return True

    def _name(self) -> str:
        sign = self._text[self.at]
        if sign in _QUOTED:
            return self._quoted(sign)
        match = _WORD.match(self._text, self.at)
        if match is None:
            raise Broken
        self.at = match.end()
        self._mended("put quotes around bare keys")
        return match[0]

    def _plain(self) -> Any:
        number = _NUMBER.match(self._text, self.at)
        if number:
            self.at = number.end()
            return _number(number[0])
        match = _WORD.match(self._text, self.at)
        word = match[0] if match else ""
        self.at += len(word)
        if word in _LITERALS:
            return _LITERALS[word]
        if word in _OF_PYTHON:
            self._mended("read Python's True, False and None as JSON's")
            return _OF_PYTHON[word]
        # "tru" or "1." at the very end is a value that was cut.
        is_cut_word = word and self.at == len(self._text) and any(known.startswith(word) for known in _LITERALS)
        if is_cut_word or _CUT_NUMBER.match(self._text, self.at):
            self._mended(_CLOSED)
            self.at = len(self._text)
            return _CUT
        raise Broken

    def _quoted(self, sign: str) -> str:
        match = _QUOTED[sign].match(self._text, self.at)
        if sign == "'":
            self._mended("read single quotes as double")
        if match is None:
            inner, self.at = self._text[self.at + 1 :].rstrip("\\"), len(self._text)
            self._mended(_CLOSED)
        else:
            inner, self.at = match[1], match.end()
        return self._unescaped(_IN_SINGLE.sub(_in_double, inner) if sign == "'" else inner)

    def _unescaped(self, inner: str) -> str:
        if "\n" in inner:
            self._mended("kept line breaks inside a text")
        for text in (inner, _ESCAPE.sub(_escaped, inner)):
            try:
                found: str = json.loads(f'"{text}"', strict=False)
            except ValueError:
                self._mended("kept backslashes that escape nothing")
            else:
                return found
        raise Broken


def _number(written: str) -> int | float:
    try:
        value: int | float = json.loads(written)
    except ValueError:
        raise Broken from None
    if not isinstance(value, int) and not math.isfinite(value):
        raise Broken
    return value


def _in_double(match: re.Match[str]) -> str:
    """What stands in single quotes, as it is written in double ones."""
    if match[0] == '"':
        return '\\"'
    return "'" if match[1] == "'" else match[0]


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] else "\\\\"
