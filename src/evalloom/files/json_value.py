"""Decodes one JSON text: with orjson if the result is certain to be exact, otherwise with the strict scanner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Place, show_path
from evalloom.core.text import quote
from evalloom.files.jsontext import JsonError, Scan, offset_place, places_of
from evalloom.files.rows import Problem, Row, not_utf8

_DIGITS = lazy_pattern(rb"[0-9.]{16,}")
_NUMBER_PART = frozenset(b"0123456789.")
_BEFORE_NUMBER = frozenset(b"-:,[ \t\r\n")
_AFTER_NUMBER = frozenset(b"eE,]} \t\r\n")
# Patterns that begin with a single byte are fast.
_INDENTED = lazy_pattern(rb"\n[ \t\r]")
_TINY = lazy_pattern(rb"-(?<=[0-9][eE]-)[0-9]{3,}(?![^,\]}\s])")
_DIGITS_AS_0 = bytes.maketrans(b"123456789.", b"0000000000")
_LONG = b"0" * 16

ODD: Any = object()


def decode(text: bytes) -> Any:
    """Return the value of a text that orjson decodes exactly, else `ODD`."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ODD
    return ODD if _is_suspicious(text, [value]) else value


def decode_block(text: bytes, lines: list[bytes]) -> list[Any] | None:
    """Return the values of lines that orjson decodes exactly, else None."""
    try:
        values = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    return None if _is_suspicious(text, values) else values


def _is_suspicious(text: bytes, values: list[Any]) -> bool:
    """Whether orjson may have changed a value silently; cheap, and without false negatives.

    A repeated key leaves fewer quotes than the text has. Only a run of 16 or more digits, or a negative exponent of
    three or more digits, can lose precision. orjson cannot write nesting deeper than MAX_DEPTH.
    """
    try:
        encoded = orjson.dumps(values)
    except TypeError:
        return True
    if b"\\" in text and b"\\u0022" in text:
        return True
    # The positions of a block assume that each record begins in the first column, so an indented line is read by
    # itself. A single value may span several lines.
    if text[0] <= 32 or (len(values) > 1 and _INDENTED.search(text) is not None):
        return True
    if text.count(b'"') != encoded.count(b'"') or _TINY.search(text) is not None:
        return True
    return _has_long_number(text, _long_runs(text.translate(_DIGITS_AS_0)))


def _long_runs(text: bytes) -> Iterator[int]:
    """Yield an offset in each run of 16 or more zeros. A regular expression takes 20 times as long."""
    at = text.find(_LONG)
    while at >= 0:
        yield at
        at = text.find(_LONG, at + len(_LONG))


def _has_long_number(text: bytes, candidates: Iterable[int]) -> bool:
    """Whether 16 or more digits around a candidate offset may be a number that loses digits as a float or integer."""
    end = 0
    for at in candidates:
        if at < end:
            continue
        start = at
        while start > 0 and text[start - 1] in _NUMBER_PART:
            start -= 1
        run = _DIGITS.match(text, start)
        end = run.end() if run else 0
        stands_alone = start == 0 or text[start - 1] in _BEFORE_NUMBER
        if run and stands_alone and (end == len(text) or text[end] in _AFTER_NUMBER):
            digits = run.group()
            if digits.count(b".") > 1:
                continue  # dots in a text, as of a form to fill in
            if b"." in digits:
                is_exact = repr(float(digits)).encode() == digits
            else:
                is_exact = int(digits) < (2**63 if text[start - 1 : start] == b"-" else 2**64)
            if not is_exact or text[end : end + 1] in (b"e", b"E"):
                return True
    return False


def row_of(text: bytes, place: Place) -> Iterator[Row | Problem]:
    """Yield the row of one text, with its warnings, or its error."""
    value = decode(text)
    if value is not ODD:
        yield Row(value, *place, text)
    else:
        yield from diagnose(text, place)


def diagnose(text: bytes, place: Place) -> Iterator[Row | Problem]:
    """Read one text with the strict scanner: yield the row and its warnings, or the error."""
    try:
        decoded = text.decode()
        scan = Scan(decoded)
    except UnicodeDecodeError as error:
        yield not_utf8(text, error, place)
    except JsonError as error:
        yield Problem(error.code, "error", error.message, offset_place(decoded, error.offset, *place))
    else:
        offsets = [offset for _, offset in scan.repeated]
        for (path, _), where in zip(scan.repeated, places_of(decoded, offsets, *place), strict=True):
            message = f"{show_path(path)}: the key {quote(path[-1])} is written twice; the last one counts"
            yield Problem("duplicate_key", "warning", message, where)
        yield Row(scan.value, *place, text)
