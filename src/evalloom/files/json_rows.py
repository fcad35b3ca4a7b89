"""JSONL, JSON arrays and objects printed one after another, as rows.

Almost every file is one object per line, so whole blocks of lines are decoded at once. A block with anything odd in it
is gone through line by line, and a value that is not on one line is followed over as many lines as it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from evalloom.files.jsontext import JsonFault, Scan, offset_place
from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row
from evalloom.model import Place, quote, show_path

_SPACE = b" \t\r\n"
_TOKEN = re.compile(rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*("|\n)?|[\[{]|[\]}]|\n')
_SCALAR_END = re.compile(rb"[,\]\n]")
_LINES_TRIED = 64
"""How many lines inside one value are taken for the start of the next record before we stop asking."""
_DIGITS = frozenset(b"0123456789.")


class JsonReader:
    """Rows and problems of one JSON text that arrives in chunks; `lines` counts them when it is through."""

    def __init__(self, chunks: Iterable[bytes], may_be_array: bool = True) -> None:
        self._chunks = iter(chunks)
        self._may_be_array = may_be_array
        self._data = b""
        self._at = 0
        self._line = 1
        self._line_start = 0
        self._ended = False
        self._break = 0
        self.open_ended = False
        """Whether the text ended inside a value: more text could have completed it."""

    @property
    def lines(self) -> int:
        """How many lines were read so far; all of them once the rows are through."""
        unfinished = bool(self._data) and not self._data.endswith(b"\n") and self._at >= len(self._data)
        return self._line - 1 + (1 if unfinished else 0)

    def __iter__(self) -> Iterator[Row | Problem]:
        if self._may_be_array and self._starts_array():
            yield from self._array_rows()
        while self._fill_line():
            stop = self._data.rfind(b"\n", self._at) + 1 or len(self._data)
            block = self._data[self._at : stop]
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            values = _decode_block(block, lines)
            if values is not None:
                first = self._line
                self._advance(stop, len(lines) - (self._data[stop - 1 : stop] != b"\n"))
                for number, value in enumerate(values):
                    yield Row(value, first + number, 1, lines[number])
            else:
                last = self._line + len(lines)
                while self._line < last and self._fill_line():
                    yield from self._odd_line()

    # -- the buffer -------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Reads one more chunk behind what is still unread; false at the end."""
        chunk = next(self._chunks, None)
        while chunk == b"":
            chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            return False
        keep = min(self._at, self._line_start)
        self._data = self._data[keep:] + chunk
        self._at -= keep
        self._line_start -= keep
        return True

    def _fill_line(self) -> bool:
        """Makes sure a whole line stands at the cursor, or all that is left; false when nothing is."""
        while not self._ended and self._data.find(b"\n", self._at) < 0:
            if len(self._data) - self._at > MAX_RECORD_BYTES or not self._more():
                break
        return self._at < len(self._data)

    def _advance(self, to: int, breaks: int | None = None) -> None:
        """Moves the cursor forward, keeping count of lines."""
        count = self._data.count(b"\n", self._at, to) if breaks is None else breaks
        if count:
            self._line += count
            self._line_start = self._data.rfind(b"\n", self._at, to) + 1
        self._at = to

    def _place(self) -> Place:
        return Place(self._line, len(self._data[self._line_start : self._at].decode("utf-8", "replace")) + 1)

    def _skip_space(self) -> bytes:
        """Moves past white space and `//` lines; the byte at the cursor, empty at the end."""
        while True:
            while self._at < len(self._data) and self._data[self._at] in _SPACE:
                self._advance(self._at + 1)
            if self._at + 1 >= len(self._data) and not self._ended and self._more():
                continue
            if not self._data.startswith(b"//", self._at):
                return self._data[self._at : self._at + 1]
            self._skip_line()

    def _skip_line(self) -> None:
        """Moves behind the end of this line, however long it is."""
        while (stop := self._data.find(b"\n", self._at)) < 0:
            self._at = len(self._data)
            if not self._more():
                return
        self._advance(stop + 1)

    # -- lines ------------------------------------------------------------------------------------

    def _odd_line(self) -> Iterator[Row | Problem]:
        """The rows of one line that is not simply an object: blank, a comment, broken, or the start of more."""
        stop = self._data.find(b"\n", self._at)
        stop = len(self._data) if stop < 0 else stop
        line = self._data[self._at : stop]
        stripped = line.strip(_SPACE)
        if not stripped or stripped.startswith(b"//"):
            self._skip_line()
            return
        if len(line) > MAX_RECORD_BYTES:
            yield self._too_long("line")
            self._skip_line()
            return
        self._at += line.index(stripped)
        place = self._place()
        value = _decode(stripped)
        if value is not _ODD:
            self._at = stop
            self._skip_line()
            yield Row(value, *place, stripped)
        elif stripped[:1] in (b"{", b"["):
            yield from self._value_over_lines(place)
        else:
            yield from _diagnose(stripped, place)
            self._skip_line()

    def _value_over_lines(self, place: Place) -> Iterator[Row | Problem]:
        end = self._find_end()
        if end < 0:
            yield from self._broken_value(place)
            return
        rest = self._data[end : self._data.find(b"\n", end) + 1 or len(self._data)].strip(_SPACE)
        if rest and not rest.startswith((b"{", b"[")):
            yield from _diagnose(self._data[self._at : end] + b" " + rest, place)
            self._skip_line()
            return
        text = self._data[self._at : end]
        self._advance(end)
        if not rest:
            self._skip_line()
        yield from _row_of(text, place)

    def _find_end(self) -> int:
        """Where the value at the cursor ends; -1 when it breaks off, and `_break` is where to go on."""
        depth = 0
        seen = 0
        record_lines: list[int] = []
        while True:
            token = _TOKEN.search(self._data, self._at + seen)
            if (token is None or token.end() == len(self._data)) and not self._ended:
                if len(self._data) - self._at > MAX_RECORD_BYTES:
                    break
                self._more()
                continue
            if token is None:
                self.open_ended = True
                seen = len(self._data) - self._at
                break
            found = token.group()
            seen = token.end() - self._at
            if found in (b"{", b"["):
                depth += 1
            elif found in (b"}", b"]"):
                depth -= 1
                if depth == 0:
                    return token.end()
            elif found == b"\n":
                if len(record_lines) < _LINES_TRIED and self._is_record_line(seen):
                    record_lines.append(seen)
                    if not self._is_open_value(seen):
                        break
            elif token.group(1) != b'"':
                self.open_ended = token.group(1) is None
                break
        # A line inside that is a record by itself was one, and the value before it was cut off.
        self._break = next((at for at in record_lines if self._is_whole_record(at)), seen)
        return -1

    def _is_record_line(self, offset: int) -> bool:
        """Whether the line at this offset opens an object with the same indent as the value at the cursor."""
        indent = self._data[self._line_start : self._at]
        while len(self._data) <= self._at + offset + len(indent) and not self._ended:
            self._more()
        return self._data.startswith(indent + b"{", self._at + offset)

    def _is_whole_record(self, offset: int) -> bool:
        start = self._at + offset
        stop = self._data.find(b"\n", start)
        line = self._data[start : stop if stop >= 0 else len(self._data)]
        return isinstance(_decode(line.strip(b" \t\r,")), dict)

    def _is_open_value(self, length: int) -> bool:
        """Whether the text up to here, and an object after it, is the beginning of a JSON value."""
        try:
            Scan(self._data[self._at : self._at + length].decode() + "{")
        except UnicodeDecodeError:
            return False
        except JsonFault as fault:
            return fault.incomplete
        return False

    def _broken_value(self, place: Place) -> Iterator[Row | Problem]:
        """Says what is wrong with a value that never ends, and goes to where the next one may begin."""
        if len(self._data) - self._at > MAX_RECORD_BYTES:
            yield self._too_long("record")
        else:
            yield from _diagnose(self._data[self._at : self._at + self._break].rstrip(_SPACE), place)
        indent = self._data[self._line_start : self._at]
        self._advance(self._at + self._break)
        if self._at > self._line_start:
            self._skip_line()
        while self._fill_line() and not self._data.startswith((indent + b"{", b"]"), self._at):
            self._skip_line()

    # -- arrays -----------------------------------------------------------------------------------

    def _starts_array(self) -> bool:
        """Whether the text is one array of records: `[` and then an object, or `[` alone on its line."""
        if self._skip_space() != b"[":
            return False
        after = self._at + 1
        while True:
            rest = self._data[after:].lstrip(b" \t\r")
            if rest or self._ended or not self._more():
                break
            after = self._at + 1
        return rest[:1] in (b"\n", b"{", b"")

    def _array_rows(self) -> Iterator[Row | Problem]:
        opened = self._place()
        self._at += 1
        while True:
            head = self._skip_space()
            if head == b",":
                self._at += 1
            elif head == b"]":
                self._at += 1
                if self._skip_space() == b"[":
                    self._at += 1
                    continue
                return
            elif not head:
                self.open_ended = True
                yield Problem("json_parse_error", "error", "the array is not closed. Add ']' at the end", opened)
                return
            else:
                yield from self._element(head)

    def _element(self, head: bytes) -> Iterator[Row | Problem]:
        place = self._place()
        end = self._find_end() if head in (b"{", b"[") else self._scalar_end()
        if end < 0:
            yield from self._broken_value(place)
        else:
            text = self._data[self._at : end].rstrip(_SPACE)
            self._advance(end)
            yield from _row_of(text, place)

    def _scalar_end(self) -> int:
        at = self._at
        if self._data[at : at + 1] == b'"':
            token = _TOKEN.match(self._data, at)
            at = token.end() if token else at
        match = _SCALAR_END.search(self._data, at)
        while match is None and len(self._data) - self._at <= MAX_RECORD_BYTES and self._more():
            return self._scalar_end()
        return match.start() if match else len(self._data)

    def _too_long(self, what: str) -> Problem:
        limit = MAX_RECORD_BYTES // (1024 * 1024)
        message = f"a {what} of more than {limit} MiB is not read. Split it, or keep large data in files of its own"
        return Problem("line_too_long", "error", message, self._place())


# -- one value ------------------------------------------------------------------------------------

_ODD: Any = object()


def _decode(text: bytes) -> Any:
    """The value of a text that is in order beyond doubt, else `_ODD`."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _ODD
    return _ODD if _is_suspicious(text, [value]) else value


def _decode_block(text: bytes, lines: list[bytes]) -> list[Any] | None:
    """The values of lines that are all in order beyond doubt, else None."""
    try:
        values = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    return None if _is_suspicious(text, values) else values


def _is_suspicious(text: bytes, values: list[Any]) -> bool:
    """Whether the decoder may have changed something in silence; cheap, never wrong when it says no.

    A repeated key leaves fewer quotes than were written. Only a run of 16 or more digits, or an exponent of e-3xx,
    can lose precision. Nesting deeper than MAX_DEPTH cannot be written back.
    """
    try:
        again = orjson.dumps(values)
    except TypeError:
        return True
    import numpy as np

    raw = np.frombuffer(text, np.uint8)
    if np.count_nonzero(raw == 34) != np.count_nonzero(np.frombuffer(again, np.uint8) == 34):
        return True
    if b"\\" in text and b"\\u0022" in text:
        return True
    dashes = np.flatnonzero(raw[1:-1] == 45)
    if np.any((raw[dashes] | 32 == 101) & (raw[dashes + 2] == 51)):
        return True
    digits = (raw[::8] - 46) < 12
    candidates = np.flatnonzero(digits[1:] & digits[:-1]) * 8
    return any(_in_long_number(text, at) for at in candidates.tolist())


def _in_long_number(text: bytes, at: int) -> bool:
    """Whether the digits around an offset are 16 or more in a row and not inside a quoted string."""
    start = at
    while start > 0 and text[start - 1] in _DIGITS:
        start -= 1
    end = at
    while end < len(text) and text[end] in _DIGITS:
        end += 1
    return end - start > 15 and text[start - 1 : start] != b'"'


def _row_of(text: bytes, place: Place) -> Iterator[Row | Problem]:
    value = _decode(text)
    if value is not _ODD:
        yield Row(value, *place, text)
    else:
        yield from _diagnose(text, place)


def _diagnose(text: bytes, place: Place) -> Iterator[Row | Problem]:
    """Reads one text the slow and exact way: the row with its warnings, or why it is refused."""
    if len(text) > MAX_RECORD_BYTES:
        yield Problem("line_too_long", "error", f"a record of {len(text):,} bytes is not read", place)
        return
    try:
        decoded = text.decode()
        scan = Scan(decoded)
    except UnicodeDecodeError as fault:
        shown = text[fault.start : fault.start + 4]
        column = place.column + len(text[: fault.start].decode("utf-8", "replace"))
        message = f"is not UTF-8 here: got the bytes {shown!r}. Save the file as UTF-8, or name its --encoding"
        yield Problem("not_utf8", "error", message, Place(place.line, column))
    except JsonFault as fault:
        yield Problem(fault.code, "error", fault.message, offset_place(decoded, fault.offset, *place))
    else:
        for path, offset in scan.repeated:
            message = f"{show_path(path)}: the key {quote(path[-1])} is written twice; the last one counts"
            yield Problem("duplicate_key", "warning", message, offset_place(decoded, offset, *place))
        yield Row(scan.value, *place, text)
