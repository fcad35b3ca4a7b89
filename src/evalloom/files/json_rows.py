"""JSONL, JSON arrays and objects printed one after another, as rows.

Almost every file is one object per line, so whole blocks of lines are decoded at once. A block with anything odd in it
is gone through line by line, and a value that is not on one line is followed over as many lines as it takes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Place
from evalloom.core.text import quote
from evalloom.files.json_value import ODD, decode, decode_block, diagnose, row_of
from evalloom.files.jsontext import JsonFault, Scan
from evalloom.files.rows import MAX_RECORD_BYTES, Lines, Problem, Refused, Row, one_by_one

_SPACE = b" \t\r\n"
_SPACES = lazy_pattern(rb"[ \t\r\n]*")
_BLANKS = lazy_pattern(rb"[ \t\r]*")
_TOKEN = lazy_pattern(rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*("|\n)?|[\[{]|[\]}]|\n')
_SCALAR_END = lazy_pattern(rb"[,\]\n]")
_LINES_TRIED = 64
"""How many lines inside one value are taken for the start of the next record before we stop asking."""
_MARGIN = 256
"""How much of the beginning of a line is kept, to know how far it is indented."""
_STEP = 4 * 1024 * 1024
"""At most so much is added to a long record at once; less would copy what is there over and over."""


class JsonReader:
    """Rows and problems of one JSON text that arrives in chunks; `lines` counts them when it is through."""

    def __init__(self, chunks: Iterable[bytes], may_be_array: bool = True) -> None:
        self._chunks = iter(chunks)
        self._may_be_array = may_be_array
        self._in_array = False
        self._data = b""
        self._at = 0
        self._line = 1
        self._line_start = 0
        """Where the line of the cursor begins; negative when that is no longer in the buffer."""
        self._counted, self._characters = 0, 0
        """Up to where the characters of this line are counted, and how many they are."""
        self._ended = False
        self._fault: Refused | None = None
        self._break = 0
        self._breaks_at_line = False
        self._is_too_long = False
        self.open_ended = False
        """Whether the text ended inside a value: more text could have completed it."""

    @property
    def lines(self) -> int:
        """How many lines were read so far; all of them once the rows are through."""
        unfinished = bool(self._data) and not self._data.endswith(b"\n") and self._at >= len(self._data)
        return self._line - 1 + (1 if unfinished else 0)

    def __iter__(self) -> Iterator[Row | Problem]:
        return one_by_one(self.blocks())

    def blocks(self) -> Iterator[Row | Problem | Lines]:
        """Rows and problems in order, with plain lines kept together."""
        if self._may_be_array and self.starts_array():
            yield from self._array_rows()
        while self._fill_line():
            stop = self._data.rfind(b"\n", self._at) + 1 or len(self._data)
            block = self._data[self._at : stop]
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            is_plain = self._at == self._line_start and len(block) <= MAX_RECORD_BYTES
            values = decode_block(block, lines) if is_plain else None
            if values is not None:
                first = self._line
                self._advance(stop, len(lines) - (self._data[stop - 1 : stop] != b"\n"))
                yield Lines(values, first, lines)
            else:
                last = self._line + len(lines)
                while self._line < last and self._fill_line():
                    yield from self._odd_line()
        if self._fault is not None:
            raise self._fault

    # -- the buffer -------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Reads on behind what is still unread; false at the end."""
        keep = self._line_start if 0 <= self._line_start >= self._at - _MARGIN else self._at
        wanted, pieces = min(len(self._data) - keep, _STEP), list[bytes]()
        while not self._ended and (not pieces or wanted > 0):
            chunk = self._next_chunk()
            if chunk:
                pieces.append(chunk)
                wanted -= len(chunk)
        if not pieces:
            return False
        if self._counted < keep:
            self._place()
        self._data = b"".join((self._data[keep:], *pieces))
        self._at -= keep
        self._line_start -= keep
        self._counted -= keep
        return True

    def _next_chunk(self) -> bytes:
        try:
            chunk = next(self._chunks, None)
        except Refused as fault:
            # What came before the fault is read first.
            self._fault, chunk = fault, None
        self._ended = chunk is None
        return chunk or b""

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
            self._line_start = self._counted = self._data.rfind(b"\n", self._at, to) + 1
            self._characters = 0
        self._at = to

    def _place(self) -> Place:
        """The place of the cursor, counted on from the last time: a line may hold a million records."""
        self._characters += len(self._data[self._counted : self._at].decode("utf-8", "replace"))
        self._counted = self._at
        return Place(self._line, self._characters + 1)

    def _margin(self) -> int:
        """How far the line of the cursor is indented."""
        if self._line_start < 0:
            return 0
        before = self._data[self._line_start : min(self._at, self._line_start + _MARGIN)]
        return len(before) - len(before.lstrip(b" \t"))

    def _skip_space(self) -> bytes:
        """Moves past white space and `//` lines; the byte at the cursor, empty at the end."""
        while True:
            self._advance(_end(_SPACES, self._data, self._at))
            if self._at + 1 >= len(self._data) and not self._ended and self._more():
                continue
            if not self._data.startswith(b"//", self._at):
                return self._data[self._at : self._at + 1]
            self._skip_line()

    def _skip_blanks(self) -> bytes:
        """Moves past white space on this line; the byte at the cursor, empty at the end."""
        while True:
            self._at = _end(_BLANKS, self._data, self._at)
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

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
        line = self._data[self._at : stop if stop >= 0 else len(self._data)]
        stripped = line.strip(_SPACE)
        if stripped.startswith(b"//") or (not stripped and len(line) <= MAX_RECORD_BYTES):
            self._skip_line()
            return
        if len(line) > MAX_RECORD_BYTES:
            yield self._too_long("line")
            self._skip_line()
            return
        self._at += line.index(stripped)
        place = self._place()
        value = decode(stripped)
        if value is not ODD:
            self._skip_line()
            yield Row(value, *place, stripped)
        elif stripped[:1] in (b"{", b"["):
            yield from self._values_on_line(place)
        else:
            self._skip_line()
            yield from diagnose(stripped, place)

    def _values_on_line(self, place: Place) -> Iterator[Row | Problem]:
        """The values that begin on this line, each over as many lines as it takes."""
        while True:
            end = self._find_end()
            if end < 0:
                yield from self._broken_value(place)
                return
            text = self._data[self._at : end]
            self._advance(end)
            head = self._skip_blanks()
            if head not in (b"{", b"[", b"\n", b""):
                yield from self._not_alone(text, place)
                return
            yield from row_of(text, place)
            if head in (b"\n", b""):
                self._skip_line()
                return
            place = self._place()

    def _not_alone(self, text: bytes, place: Place) -> Iterator[Problem]:
        """Says what is wrong with a value, or else that it is followed by something that does not belong there."""
        self._fill_line()
        rest = self._data[self._at : self._at + 80].split(b"\n")[0].decode("utf-8", "replace")
        for item in row_of(text, place):
            if isinstance(item, Problem):
                yield item
            else:
                message = f"nothing more expected here, got {quote(rest.rstrip()[:20])}"
                yield Problem("json_parse_error", "error", message, self._place())
        self._skip_line()

    def _find_end(self) -> int:
        """Where the value at the cursor ends; -1 when it breaks off, and `_break` is where to go on."""
        depth = 0
        seen = 0
        margin = self._margin()
        record_lines: list[int] = []
        other_line = 0
        while True:
            token = _TOKEN.search(self._data, self._at + seen)
            # One byte more must be there: a backslash at the end of the buffer may escape what is still to come.
            waiting = (token is None or token.end() + 1 >= len(self._data)) and not self._ended
            reached = len(self._data) if waiting or token is None else token.end()
            self._is_too_long = reached - self._at > MAX_RECORD_BYTES
            if self._is_too_long:
                break
            if waiting:
                self._more()
                continue
            seen = reached - self._at
            if token is None:
                self.open_ended = True
                break
            found = token.group()
            if found in (b"{", b"["):
                depth += 1
            elif found in (b"}", b"]"):
                depth -= 1
                if depth == 0:
                    return token.end()
            elif found == b"\n":
                if len(record_lines) < _LINES_TRIED and (opened := self._opens_record(seen, margin, depth)):
                    record_lines.append(seen)
                    if not self._is_open_value(opened):
                        break
                elif not other_line and not self._in_array and self._is_other_line(seen, margin):
                    other_line = seen
            elif token.group(1) != b'"':
                self.open_ended = token.group(1) is None and token.end() == len(self._data)
                break
        # A line inside that is a record by itself was one, and the value before it was cut off.
        self._break = next((at for at in record_lines if self._is_whole_record(at)), seen)
        self._breaks_at_line = 0 < other_line < self._break
        if self._breaks_at_line:
            self._break = other_line
        return -1

    def _opens_record(self, offset: int, margin: int, depth: int) -> int:
        """Behind the `{` with which the line at this offset begins, no deeper than `margin`; 0 when it does not."""
        while len(self._data) <= self._at + offset + margin + 2 and not self._ended:
            self._more()
        start = self._at + offset
        match = _opening(margin, b"{").match(self._data, start)
        # At depth 1 a `}` is simply the end of the value.
        return match.end() - self._at if match and (depth > 1 or b"}" not in match.group()) else 0

    def _is_other_line(self, offset: int, margin: int) -> bool:
        """Whether the line at this offset, indented no more than the value, is no part of a printed object."""
        start = self._at + offset
        while self._data.find(b"\n", start) < 0 and len(self._data) - start < _STEP and self._more():
            start = self._at + offset
        stop = self._data.find(b"\n", start)
        line = self._data[start : stop if stop >= 0 else len(self._data)].rstrip(_SPACE)
        text = line.lstrip(_SPACE)
        if not text or len(line) - len(text) > margin or text[:1] in (b"}", b"]", b",", b":", b"{"):
            return False
        may_be_element = text[:1] in b'"[-0123456789' or text.rstrip(b", ") in (b"true", b"false", b"null")
        return not may_be_element or decode(text) is not ODD

    def _is_whole_record(self, offset: int) -> bool:
        start = self._at + offset
        stop = self._data.find(b"\n", start)
        line = self._data[start : stop if stop >= 0 else len(self._data)]
        return isinstance(decode(line.strip(b" \t\r,")), dict)

    def _is_open_value(self, length: int) -> bool:
        """Whether the text up to here is the beginning of a JSON value."""
        try:
            Scan(self._data[self._at : self._at + length].decode())
        except UnicodeDecodeError:
            return False
        except JsonFault as fault:
            return fault.incomplete
        return False

    def _broken_value(self, place: Place) -> Iterator[Row | Problem]:
        """Says what is wrong with a value that never ends, and goes to where the next one may begin."""
        margin, line = self._margin(), self._line
        if self._is_too_long:
            yield self._too_long("record")
        else:
            yield from diagnose(self._data[self._at : self._at + self._break].rstrip(_SPACE), place)
        self._advance(self._at + self._break)
        if self._at != self._line_start:
            self._skip_line()
        # What broke on its first line is one broken line. Otherwise the rest of a printed object follows.
        if self._line > line + 1 and not self._breaks_at_line:
            self._skip_to_record(margin)

    def _skip_to_record(self, margin: int) -> None:
        """Goes to the next line that opens a record, or closes the array, no deeper than `margin`."""
        start = _opening(margin, b"{\\]" if self._in_array else b"{")
        while self._fill_line():
            if match := start.match(self._data, self._at):
                self._at = match.end() - 1
                return
            self._skip_line()
        self.open_ended = True

    # -- arrays -----------------------------------------------------------------------------------

    def starts_array(self) -> bool:
        """Whether the text is one array of records: `[` and then an object, or `[` alone on its line."""
        if self._skip_space() != b"[":
            return False
        while True:
            after = _end(_BLANKS, self._data, self._at + 1)
            if after < len(self._data) or after > MAX_RECORD_BYTES or not self._more():
                head = self._data[after : after + 1]
                return head in (b"\n", b"{", b"/", b"") or (head == b"]" and not self._data[after + 1 :].strip())

    def _array_rows(self) -> Iterator[Row | Problem]:
        self._in_array = True
        opened = self._place()
        before = b""
        while True:
            head = self._skip_space()
            if before == b"]" and head != b"[":
                self._in_array = False
                return
            if not head:
                self.open_ended = True
                yield Problem("json_parse_error", "error", "the array is not closed. Add ']' at the end", opened)
                return
            if fault := _misplaced(before, head):
                yield Problem("json_parse_error", "error", fault, self._place())
            if head in (b"[", b",", b"]") and (head != b"[" or before in (b"", b"]")):
                self._at += 1
                before = head
            else:
                is_whole = yield from self._element(head)
                before = b"value" if is_whole else b"broken"

    def _element(self, head: bytes) -> Generator[Row | Problem, None, bool]:
        """The row of one element; whether its end is known, so that a comma or `]` must follow."""
        place = self._place()
        end = self._find_end() if head in (b"{", b"[") else self._scalar_end()
        if end < 0:
            yield from self._broken_value(place)
            return False
        text = self._data[self._at : end].rstrip(_SPACE)
        if len(text) > MAX_RECORD_BYTES:
            yield self._too_long("record")
            self._skip_line()
            return False
        self._advance(end)
        yield from row_of(text, place)
        return head in (b"{", b"[")

    def _scalar_end(self) -> int:
        while True:
            at = self._at
            if self._data[at : at + 1] == b'"' and (token := _TOKEN.match(self._data, at)):
                at = token.end() - (token.group(1) == b"\n")
            if match := _SCALAR_END.search(self._data, at):
                return match.start()
            if len(self._data) - self._at > MAX_RECORD_BYTES or not self._more():
                return len(self._data)

    def _too_long(self, what: str) -> Problem:
        limit = MAX_RECORD_BYTES // (1024 * 1024)
        message = f"a {what} of more than {limit} MiB is not read. Split it, or keep large data in files of its own"
        return Problem("line_too_long", "error", message, self._place())


def _opening(margin: int, heads: bytes) -> re.Pattern[bytes]:
    """A line that begins with one of these, indented by no more than `margin`; also behind `,` and as in `}, {`."""
    return re.compile(rb"[ \t]{0,%d}(?:[},][}, \t]*)?[%b]" % (margin, heads))


def _end(spaces: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = spaces.match(data, at)
    return match.end() if match else at


def _misplaced(before: bytes, head: bytes) -> str:
    """What is wrong with `head` in an array where `before` came before it; empty when nothing is."""
    if head == b",":
        return "expected a value, got ','" if before in (b"[", b",") else ""
    if head == b"]":
        return "a comma before ']' is not JSON. Take it away" if before == b"," else ""
    return "expected ',' or ']' before the next value" if before == b"value" else ""
