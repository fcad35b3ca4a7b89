"""One JSON text, one value: at full speed where nothing is odd, and exactly where something may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Place, show_path
from evalloom.core.text import quote
from evalloom.files.jsontext import JsonFault, Scan, offset_place, places_of
from evalloom.files.rows import Problem, Row, not_utf8

_SMALL = 4096
_DIGITS = lazy_pattern(rb"[0-9.]{16,}")
_NUMBER_PART = frozenset(b"0123456789.")
_BEFORE_NUMBER = frozenset(b"-:,[ \t\r\n")
_AFTER_NUMBER = frozenset(b"eE,]} \t\r\n")
_INDENTED = lazy_pattern(rb"\n[ \t\r]")
_TINY = lazy_pattern(rb"[0-9][eE]-[0-9]{3,}(?![^,\]}\s])")

ODD: Any = object()


def decode(text: bytes) -> Any:
    """The value of a text that is in order beyond doubt, else `ODD`."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ODD
    return ODD if _is_suspicious(text, [value]) else value


def decode_block(text: bytes, lines: list[bytes]) -> list[Any] | None:
    """The values of lines that are all in order beyond doubt, else None."""
    try:
        values = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    return None if _is_suspicious(text, values) else values


def _is_suspicious(text: bytes, values: list[Any]) -> bool:
    """Whether the decoder may have changed something in silence; cheap, never wrong when it says no.

    A repeated key leaves fewer quotes than were written. Only a run of 16 or more digits, or an exponent of three
    or more digits below zero, can lose precision. Nesting deeper than MAX_DEPTH cannot be written back.
    """
    try:
        again = orjson.dumps(values)
    except TypeError:
        return True
    if b"\\" in text and b"\\u0022" in text:
        return True
    if len(text) < _SMALL:
        is_lossy = _TINY.search(text) is not None or _has_long_number(
            text, (run.start() for run in _DIGITS.finditer(text))
        )
        is_indented = len(values) > 1 and _INDENTED.search(text) is not None
        return is_lossy or is_indented or text[0] <= 32 or text.count(b'"') != again.count(b'"')
    import numpy as np

    raw = np.frombuffer(text, np.uint8)
    if np.count_nonzero(raw == 34) != np.count_nonzero(np.frombuffer(again, np.uint8) == 34):
        return True
    # An indented line is read by itself, because its record does not begin in the first column. One value may well
    # be printed over several lines.
    if raw[0] <= 32 or (len(values) > 1 and np.any(raw[np.flatnonzero(raw[:-1] == 10) + 1] <= 32)):
        return True
    dashes = np.flatnonzero(raw[2:] == 45)
    exponents = dashes[(raw[dashes + 1] | 32 == 101) & (raw[dashes] - 48 < 10)]
    if any(_TINY.match(text, at) for at in exponents.tolist()):
        return True
    every_eighth = raw[::8]
    digits = (every_eighth - 48 < 10) | (every_eighth == 46)
    return _has_long_number(text, (np.flatnonzero(digits[1:] & digits[:-1]) * 8).tolist())


def _has_long_number(text: bytes, candidates: Iterable[int]) -> bool:
    """Whether 16 or more digits around an offset may be a number, not part of a string, that loses some of them."""
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
            is_plain = text[end : end + 1] not in (b"e", b"E")
            if not (is_plain and _is_exact(run.group(), text[start - 1 : start] == b"-")):
                return True
    return False


def _is_exact(digits: bytes, is_negative: bool) -> bool:
    """Whether a long number is held as written: a float as Python prints it, or an integer of 64 bits."""
    if b"." in digits:
        return repr(float(digits)).encode() == digits
    return int(digits) < (2**63 if is_negative else 2**64)


def row_of(text: bytes, place: Place) -> Iterator[Row | Problem]:
    value = decode(text)
    if value is not ODD:
        yield Row(value, *place, text)
    else:
        yield from diagnose(text, place)


def diagnose(text: bytes, place: Place) -> Iterator[Row | Problem]:
    """Reads one text the slow and exact way: the row with its warnings, or why it is refused."""
    try:
        decoded = text.decode()
        scan = Scan(decoded)
    except UnicodeDecodeError as fault:
        yield not_utf8(text, fault, place)
    except JsonFault as fault:
        yield Problem(fault.code, "error", fault.message, offset_place(decoded, fault.offset, *place))
    else:
        offsets = [offset for _, offset in scan.repeated]
        for (path, _), where in zip(scan.repeated, places_of(decoded, offsets, *place), strict=True):
            message = f"{show_path(path)}: the key {quote(path[-1])} is written twice; the last one counts"
            yield Problem("duplicate_key", "warning", message, where)
        yield Row(scan.value, *place, text)
