"""Repairs malformed JSON as llms write it: first by a reader that knows what it changes, then by json-repair."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record

__all__ = ["LenientReader", "finite_float", "refuse_constant", "repair_by_library", "repair_json"]

_MAX_DEPTH = 100
_MAX_VALUES = 20_000
"""How many values are read before a text is given up: about a tenth of a second."""
_BLANK = lazy_pattern(r"(?:\s+|//[^\n]*|/\*.{0,2000}?\*/)*", re.DOTALL)
_QUOTED = {
    '"': lazy_pattern(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": lazy_pattern(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_WORD = lazy_pattern(r"[^\W\d][\w$-]*")
_NUMBER = lazy_pattern(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_CUT_NUMBER = lazy_pattern(r"-?(?:\d+(?:\.|(?:\.\d+)?[eE][-+]?))?\Z")
_ESCAPE = lazy_pattern(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_IN_SINGLE = lazy_pattern(r"\\(.)|\"", re.DOTALL)
_LITERALS = {"true": True, "false": False, "null": None}
_PYTHON_LITERALS = {"True": True, "False": False, "None": None}
_CLOSED = "closed the end, which was missing"
_CUT: Any = object()
"""Stands for a value at which the text breaks off."""


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python's json takes for numbers."""
    raise ValueError(f"{name} is not JSON")


def finite_float(text: str) -> float:
    """Convert a number, and refuse one that is too large for a float."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


class LenientReader:
    """Reads one object or list at a position of a text, in one pass; `repairs` lists what was repaired.

    Repaired are trailing commas, single quotes, bare keys, Python's literals, comments, line breaks and stray
    backslashes in texts, and a missing end. Each method raises ValueError for anything else.
    """

    def __init__(self, text: str, position: int = 0, budget: int = _MAX_VALUES) -> None:
        self._text = text
        self._depth = 0
        self.position = position
        self.budget = budget
        """How many values may still be read; a caller who tries several places passes it on."""
        self._repairs: dict[str, None] = {}

    @property
    def repairs(self) -> list[str]:
        return list(self._repairs)

    def read(self) -> Any:
        """Return the value that begins here."""
        value = self._value()
        # A text that breaks off before anything was read, such as "use {", holds no JSON.
        if value is _CUT or (_CLOSED in self._repairs and not value):
            raise ValueError("expected JSON, got only its beginning")
        return value

    def read_all(self) -> Any:
        """Return the value of the whole text."""
        value = self.read()
        if not self._skip_blank():
            raise self._error("nothing more")
        return value

    def _error(self, expected: str) -> ValueError:
        return ValueError(f"expected {expected} at character {self.position + 1}")

    def _add_repair(self, repair: str) -> None:
        self._repairs[repair] = None

    def _skip_blank(self) -> bool:
        """Skip blanks and comments; return whether the text ends after them."""
        match = _BLANK.match(self._text, self.position)
        if match:
            self.position = match.end()
            if "/" in match[0]:
                self._add_repair("left out comments")
        return self.position >= len(self._text)

    def _is_cut(self) -> bool:
        """Return whether the text breaks off here."""
        if self._skip_blank():
            self._add_repair(_CLOSED)
            return True
        return False

    def _skip(self, sign: str) -> bool:
        is_next = self._text.startswith(sign, self.position)
        self.position += is_next
        return is_next

    def _value(self) -> Any:
        self.budget -= 1
        if self.budget < 0 or self._depth > _MAX_DEPTH:
            raise ValueError("expected JSON, got too many or too deep values")
        if self._is_cut():
            return _CUT
        sign = self._text[self.position]
        if sign in "{[":
            self.position += 1
            self._depth += 1
            value: Any = self._object() if sign == "{" else self._list()
            self._depth -= 1
            return value
        return self._quoted(sign) if sign in _QUOTED else self._literal()

    def _object(self) -> Record:
        record: Record = {}
        if self._is_cut() or self._skip("}"):
            return record
        while True:
            name = self._key()
            if self._is_cut():
                return record
            if not self._skip(":"):
                raise self._error("a colon")
            value = self._value()
            if value is _CUT:
                return record
            record[name] = value
            if not self._has_next("}"):
                return record

    def _list(self) -> list[Any]:
        items: list[Any] = []
        if self._is_cut() or self._skip("]"):
            return items
        while True:
            value = self._value()
            if value is _CUT:
                return items
            items.append(value)
            if not self._has_next("]"):
                return items

    def _has_next(self, end: str) -> bool:
        """Skip the comma or the closing bracket; return whether another item follows."""
        if self._is_cut() or self._skip(end):
            return False
        if not self._skip(","):
            raise self._error("a comma")
        if self._is_cut():
            return False
        if self._skip(end):
            self._add_repair("removed trailing commas")
            return False
        return True

    def _key(self) -> str:
        sign = self._text[self.position]
        if sign in _QUOTED:
            return self._quoted(sign)
        match = _WORD.match(self._text, self.position)
        if match is None:
            raise self._error("a key")
        self.position = match.end()
        self._add_repair("put quotes around bare keys")
        return match[0]

    def _literal(self) -> Any:
        """Return a number, true, false or null."""
        number = _NUMBER.match(self._text, self.position)
        if number:
            self.position = number.end()
            try:
                return json.loads(number[0], parse_float=finite_float)
            except ValueError:
                raise self._error("a smaller number") from None
        match = _WORD.match(self._text, self.position)
        word = match[0] if match else ""
        self.position += len(word)
        if word in _LITERALS:
            return _LITERALS[word]
        if word in _PYTHON_LITERALS:
            self._add_repair("read Python's True, False and None as JSON's")
            return _PYTHON_LITERALS[word]
        # "tru" or "1." at the very end is a value that was cut.
        is_cut_word = word and self.position == len(self._text) and any(name.startswith(word) for name in _LITERALS)
        if is_cut_word or _CUT_NUMBER.match(self._text, self.position):
            self._add_repair(_CLOSED)
            self.position = len(self._text)
            return _CUT
        raise self._error("a value")

    def _quoted(self, sign: str) -> str:
        match = _QUOTED[sign].match(self._text, self.position)
        if match is None:
            inner = self._text[self.position + 1 :].rstrip("\\")
            # Where a bracket closes the text, only the quote is missing, and its place is unclear.
            if inner.rstrip().endswith(("}", "]")):
                raise self._error("a closing quote")
            self.position = len(self._text)
            self._add_repair(_CLOSED)
        else:
            inner, self.position = match[1], match.end()
        if sign == "'":
            self._add_repair("read single quotes as double")
            inner = _IN_SINGLE.sub(_as_in_double_quotes, inner)
        if "\n" in inner:
            self._add_repair("kept line breaks inside a text")
        for text in (inner, _ESCAPE.sub(lambda match: match[0] if match[1] else "\\\\", inner)):
            try:
                return str(json.loads(f'"{text}"', strict=False))
            except ValueError:
                self._add_repair("kept backslashes that escape nothing")
        raise self._error("a text")


def _as_in_double_quotes(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    return "'" if match[1] == "'" else match[0]


# json-repair always returns something. What it returns counts only where it changed nothing but punctuation.
# Its time grows with the square of the length, and faster where brackets stay open: 5 s for 4,000 characters of "{'".
_MAX_REPAIRED = 5_000
_MAX_OPEN = 8
_TOKEN = lazy_pattern(r"-?\w+|\.{3}|…")
_ESCAPE_SEQUENCE = lazy_pattern(r'\\(?:[nrtbf"\\/])')
_EMPTY_TEXT = lazy_pattern(r"""(?<!")""(?!")|(?<!')''(?!')""")
_BAD_KEY = lazy_pattern(r"[\"'“”:{}\[\]]")
_SWALLOWED = lazy_pattern(r"[\"'”]\s*[,:=+]\s*[\"'“]|,\s*\Z")
_QUOTES = "\"'“”"
_NOT_TEXTS = ("nan", "infinity", "inf", "undefined")


def repair_json(text: str) -> tuple[Any, list[str]]:
    """Return the value of a text that is malformed JSON as a whole, and what was repaired. Raises ValueError."""
    reader = LenientReader(text)
    try:
        return reader.read_all(), reader.repairs
    except ValueError:
        return repair_by_library(text.strip())


def repair_by_library(text: str) -> tuple[Any, list[str]]:
    """Return what json-repair makes of a text that begins with a bracket. Raises ValueError where it had to guess."""
    open_brackets = text.count("{") + text.count("[") - text.count("}") - text.count("]")
    if len(text) > _MAX_REPAIRED or abs(open_brackets) > _MAX_OPEN or not text.startswith(("{", "[")):
        raise ValueError("expected JSON")
    # Imported late: few answers need it.
    import json_repair

    problem = ""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        problem = f" ({error.msg[0].lower()}{error.msg[1:]} at character {error.pos + 1})"
    except (ValueError, RecursionError):
        pass
    try:
        value: Any = json_repair.repair_json(text, return_objects=True, skip_json_loads=True)
    except RecursionError:
        raise ValueError("expected JSON, got too deep values") from None
    if not value or not isinstance(value, dict if text[0] == "{" else list) or not _is_clear(value, text):
        raise ValueError("expected JSON")
    return value, [f"fixed the punctuation of malformed JSON{problem}"]


def _is_clear(value: Any, text: str) -> bool:
    """Whether a repaired value has the words of the text in their order, and texts only where quotes suggest them."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if any(written.count(bracket) > text.count(bracket) for bracket in "{["):
        return False
    words = _words(written)
    before_prose = text[: max(text.rfind("}"), text.rfind("]")) + 1]
    if words != _words(text) and words != _words(before_prose):
        return False
    empty = 0
    for item, is_in_list in _texts_in(value):
        empty += not item
        is_word = not is_in_list and item.isalpha() and item.casefold() not in _NOT_TEXTS
        if _SWALLOWED.search(item) or not (is_word or _is_quoted(item, text)):
            return False
    return empty <= len(_EMPTY_TEXT.findall(text))


def _words(text: str) -> list[str]:
    words = _TOKEN.findall(_ESCAPE_SEQUENCE.sub(" ", text).casefold())
    return ["null" if word == "none" else word for word in words]


def _texts_in(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield the texts in a value, and whether each stands in a list. Raises ValueError for a key with syntax in it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if _BAD_KEY.search(name):
                raise ValueError(name)
            yield from [(inner, False)] if isinstance(inner, str) else _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from [(inner, True)] if isinstance(inner, str) else _texts_in(inner)


def _is_quoted(item: str, text: str) -> bool:
    """Whether a quote stands before the first or after the last word of a text that was repaired."""
    words = re.split(r"[\\\"'\s]+", item)
    return any(f"{mark}{words[0]}" in text or f"{words[-1]}{mark}" in text for mark in _QUOTES)
