"""A strict scanner for one JSON text, slower than orjson.

It reads the texts that orjson refuses or may change. It reports errors with their positions, repeated keys and numbers
that a float cannot hold, and knows the position of each value.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from decimal import Decimal
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Place, show_path
from evalloom.core.text import quote

MAX_DEPTH = 254
"""The deepest nesting that orjson can write, so both readers have the same limit."""

_SPACE = lazy_pattern(r"[ \t\n\r]*")
_NUMBER = lazy_pattern(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_JSON = lazy_pattern(r"-?(?:NaN|nan|Infinity|inf)\b|None\b|True\b|False\b|undefined\b|'")
_LITERALS = {"true": True, "false": False, "null": None}
_SURROGATE = lazy_pattern("[\ud800-\udfff]")


class JsonError(Exception):
    """A text that is not JSON, or that loses data. `incomplete` means that more text could complete it."""

    def __init__(self, code: str, message: str, offset: int = 0, incomplete: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.incomplete = incomplete


class Scan:
    """Scans a text for its value, its repeated keys and, with `keep_offsets`, the offset of each value."""

    def __init__(self, text: str, keep_offsets: bool = False) -> None:
        self.text = text
        self.offsets: dict[Path, int] | None = {} if keep_offsets else None
        self.repeated: list[tuple[Path, int]] = []
        self.end = 0
        start = self._skip(0)
        self.value, self.end = self._value(start, (), 0)
        rest = self._skip(self.end)
        if rest < len(text):
            raise JsonError(
                "json_parse_error", f"nothing more expected here, got {quote(text[rest : rest + 20])}", rest
            )

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _value(self, at: int, path: Path, depth: int) -> tuple[Any, int]:
        if self.offsets is not None:
            self.offsets[path] = at
        head = self.text[at : at + 1]
        if head in ("{", "["):
            if depth == MAX_DEPTH:
                raise JsonError("nesting_too_deep", f"at most {MAX_DEPTH} levels of nesting are read, got more", at)
            return self._object(at, path, depth) if head == "{" else self._array(at, path, depth)
        if head == '"':
            return self._string(at)
        return self._scalar(at, path)

    def _object(self, at: int, path: Path, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self._skip(at + 1)
        if self.text[at : at + 1] == "}":
            return members, at + 1
        while True:
            if self.text[at : at + 1] != '"':
                raise self._unexpected(at, "a key in double quotes")
            key, after = self._string(at)
            here = (*path, key)
            if key in members:
                self.repeated.append((here, at))
            after = self._skip(after)
            if self.text[after : after + 1] != ":":
                raise self._unexpected(after, "':'")
            members[key], at = self._value(self._skip(after + 1), here, depth + 1)
            at = self._skip(at)
            if self.text[at : at + 1] == "}":
                return members, at + 1
            at = self._comma(at, "}")

    def _array(self, at: int, path: Path, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip(at + 1)
        if self.text[at : at + 1] == "]":
            return items, at + 1
        while True:
            value, at = self._value(at, (*path, len(items)), depth + 1)
            items.append(value)
            at = self._skip(at)
            if self.text[at : at + 1] == "]":
                return items, at + 1
            at = self._comma(at, "]")

    def _comma(self, at: int, closer: str) -> int:
        if self.text[at : at + 1] != ",":
            raise self._unexpected(at, f"',' or '{closer}'")
        after = self._skip(at + 1)
        if self.text[after : after + 1] == closer:
            raise JsonError("json_parse_error", f"a comma before '{closer}' is not JSON. Remove it", at)
        return after

    def _string(self, at: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, at + 1, True)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                message = "the text ends inside a string. Close it with '\"'"
                raise JsonError("json_parse_error", message, at, incomplete=True) from None
            if error.msg.startswith("Invalid control"):
                message = f"the control character {self.text[error.pos]!r} inside a string must be escaped"
                raise JsonError("json_parse_error", message, error.pos) from None
            raise JsonError("json_parse_error", f"a bad escape in a string: {error.msg.lower()}", error.pos) from None
        if _SURROGATE.search(value):
            message = f"half of a surrogate pair in {quote(value)} is not valid Unicode. Write both halves"
            raise JsonError("lone_surrogate", message, at)
        return value, end

    def _scalar(self, at: int, path: Path) -> tuple[Any, int]:
        for word, literal in _LITERALS.items():
            if self.text.startswith(word, at):
                return literal, at + len(word)
        match = _NUMBER.match(self.text, at)
        if match is None or self.text[match.end() : match.end() + 1].isdigit():
            raise self._unexpected(at, "a JSON value")
        written = match.group()
        if match.group(1) is None and match.group(2) is None:
            # Python can hold larger integers, but most other readers and all 64-bit columns would change them.
            if len(written) > 18 and not -(2**63) <= Decimal(written) < 2**64:
                raise JsonError("number_loses_precision", _lossy(path, written, "64 bits"), at)
            return int(written), match.end()
        return exact_float(written, at, path), match.end()

    def _unexpected(self, at: int, expected: str) -> JsonError:
        if at >= len(self.text):
            return JsonError("json_parse_error", f"expected {expected}, got the end of the text", at, incomplete=True)
        if match := _NOT_JSON.match(self.text, at):
            hint = "Use double quotes" if match.group() == "'" else "Write null or a string"
            return JsonError(
                "json_parse_error", f"expected {expected}, got {match.group()!r}, which is not JSON. {hint}", at
            )
        incomplete = any(word.startswith(self.text[at:]) for word in _LITERALS)
        return JsonError(
            "json_parse_error", f"expected {expected}, got {quote(self.text[at : at + 20])}", at, incomplete
        )


def exact_float(written: str, at: int = 0, path: Path = ()) -> float:
    """Return the float of a written number. Raises JsonError if it loses digits."""
    value = float(written)
    if value in (float("inf"), float("-inf")):
        raise JsonError("number_loses_precision", _lossy(path, written, "a float"), at)
    digits = len(written.lower().split("e")[0].replace(".", "").lstrip("-0"))
    may_lose = digits > 15 or (digits and abs(value) < sys.float_info.min)
    # The float is exact if it prints as written, either in its shortest form or with the same number of digits.
    if may_lose and (
        digits > 800 or Decimal(written) not in (Decimal(repr(value)), Decimal(format(value, f".{digits - 1}e")))
    ):
        raise JsonError("number_loses_precision", _lossy(path, written, "a float"), at)
    return value


def _lossy(path: Path, written: str, holder: str) -> str:
    field = f"{show_path(path)}: " if path else ""
    return f"{field}the number {quote(written, 40)} does not fit {holder} without losing digits. Write it as a string"


def all_places(text: bytes, line: int, column: int) -> dict[Path, Place]:
    """Return the position of each value in a text that begins at line, column; empty if it is not JSON."""
    try:
        decoded = text.decode()
        offsets = Scan(decoded, keep_offsets=True).offsets or {}
    except (UnicodeDecodeError, JsonError):
        return {}
    return dict(zip(offsets, places_of(decoded, offsets.values(), line, column), strict=True))


def places_of(text: str, offsets: Iterable[int], line: int, column: int) -> Iterator[Place]:
    """Yield the position of each offset in a text whose first character is at line, column."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for offset in offsets:
        number = bisect_right(starts, offset) - 1
        yield Place(line + number, offset - starts[number] + (1 if number else column))


def offset_place(text: str, offset: int, line: int, column: int) -> Place:
    """Return the position of an offset in a text whose first character is at line, column."""
    breaks = text.count("\n", 0, offset)
    if not breaks:
        return Place(line, column + offset)
    return Place(line + breaks, offset - text.rfind("\n", 0, offset))
