"""Reads JSONL, JSON arrays and concatenated JSON objects as rows.

Almost every file has one object per line, so whole blocks of lines are decoded at once. A block with an unusual line is
read line by line, and a value may span any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Place
from evalloom.core.text import quote
from evalloom.files.json_value import ODD, decode, decode_block, diagnose, row_of
from evalloom.files.jsontext import JsonError, Scan
from evalloom.files.rows import MAX_RECORD_BYTES, Item, Lines, Problem, Recognizer, Refused, Row, split_blocks

_SPACE = b" \t\r\n"
_SPACES = lazy_pattern(rb"[ \t\r\n]*")
_BLANKS = lazy_pattern(rb"[ \t\r]*")
_TOKEN = lazy_pattern(rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*("|\n)?|[\[{]|[\]}]|\n[ \t\r]*(//[^\n]*)?')
_COMMENT_LINES = lazy_pattern(rb"\n[ \t\r]*//[^\n]*")
_SCALAR_END = lazy_pattern(rb"[,\]\n]")
_LINES_TRIED = 64
"""The number of lines inside one value that are tested for being the start of the next record."""
_INDENT_BYTES = 256
"""The number of bytes at the start of a line that stay in the buffer, because they tell its indentation."""
_STEP = 4 * 1024 * 1024
"""The most bytes to read at once for a long record; smaller steps would copy the buffer again and again."""


class JsonReader:
    """Iterates over the rows and problems of one JSON text that arrives in chunks."""

    def __init__(
        self, chunks: Iterable[bytes], may_be_array: bool = True, recognizer: Recognizer | None = None
    ) -> None:
        self._chunks = iter(chunks)
        self._may_be_array = may_be_array
        self._recognizer = recognizer
        self._in_array = False
        self._data = b""
        self._at = 0
        self._line = 1
        self._line_start = 0
        """The start of the current line; negative if it is no longer in the buffer."""
        self._counted, self._characters = 0, 0
        """The offset up to which the characters of this line are counted, and their number."""
        self._ended = False
        self._pending_error: Refused | None = None
        self._break = 0
        self._breaks_at_line = False
        self._is_too_long = False
        self._has_comments = False
        """Whether the value at the cursor has `//` lines inside."""
        self.open_ended = False
        """Whether the text ends inside a value, so that more text could complete it."""

    @property
    def lines(self) -> int:
        """Return the number of lines read so far."""
        unfinished = bool(self._data) and not self._data.endswith(b"\n") and self._at >= len(self._data)
        return self._line - 1 + (1 if unfinished else 0)

    def __iter__(self) -> Iterator[Row | Problem]:
        return split_blocks(self.blocks())

    def blocks(self) -> Iterator[Item]:
        """Yield rows and problems in order, with plain lines as blocks."""
        recognizer = self._recognizer
        if self._may_be_array and self.starts_array():
            yield from self._array_rows()
        while self._fill_line():
            stop = self._data.rfind(b"\n", self._at) + 1 or len(self._data)
            block = self._data[self._at : stop]
            is_plain = self._at == self._line_start and len(block) <= MAX_RECORD_BYTES
            if recognizer is not None and is_plain:
                if recognized := recognizer.recognize(block, self._line):
                    self._advance(self._at + len(recognized.text), recognized.count)
                    yield recognized
                    continue
                block = _first_lines(block, recognizer.wait)
                stop = self._at + len(block)
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            values = decode_block(block, lines) if is_plain else None
            if values is not None:
                first = self._line
                self._advance(stop, len(lines) - (self._data[stop - 1 : stop] != b"\n"))
                yield Lines(values, first, lines)
            else:
                last = self._line + len(lines)
                while self._line < last and self._fill_line():
                    yield from self._irregular_line()
        if self._pending_error is not None:
            raise self._pending_error

    # -- the buffer -------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Add chunks to the buffer; return False at the end."""
        keep = self._line_start if 0 <= self._line_start >= self._at - _INDENT_BYTES else self._at
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
        except Refused as error:
            # Read the text before the error first.
            self._pending_error, chunk = error, None
        self._ended = chunk is None
        return chunk or b""

    def _fill_line(self) -> bool:
        """Fill the buffer up to the end of the current line; return False if nothing is left."""
        while not self._ended and self._data.find(b"\n", self._at) < 0:
            if len(self._data) - self._at > MAX_RECORD_BYTES or not self._more():
                break
        return self._at < len(self._data)

    def _advance(self, to: int, breaks: int | None = None) -> None:
        """Move the cursor forward and count lines."""
        count = self._data.count(b"\n", self._at, to) if breaks is None else breaks
        if count:
            self._line += count
            self._line_start = self._counted = self._data.rfind(b"\n", self._at, to) + 1
            self._characters = 0
        self._at = to

    def _place(self) -> Place:
        """Return the position of the cursor; counts on from the last call, as a line may have a million records."""
        self._characters += len(self._data[self._counted : self._at].decode("utf-8", "replace"))
        self._counted = self._at
        return Place(self._line, self._characters + 1)

    def _indent(self) -> int:
        """Return the indentation of the current line."""
        if self._line_start < 0:
            return 0
        before = self._data[self._line_start : min(self._at, self._line_start + _INDENT_BYTES)]
        return len(before) - len(before.lstrip(b" \t"))

    def _skip_space(self) -> bytes:
        """Move past white space and `//` lines; return the byte at the cursor, empty at the end."""
        while True:
            self._advance(_end(_SPACES, self._data, self._at))
            if self._at + 1 >= len(self._data) and not self._ended and self._more():
                continue
            if not self._data.startswith(b"//", self._at):
                return self._data[self._at : self._at + 1]
            self._skip_line()

    def _skip_blanks(self) -> bytes:
        """Move past white space on this line; return the byte at the cursor, empty at the end."""
        while True:
            self._at = _end(_BLANKS, self._data, self._at)
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

    def _skip_line(self) -> None:
        """Move past the end of this line, however long it is."""
        while (stop := self._data.find(b"\n", self._at)) < 0:
            self._at = len(self._data)
            if not self._more():
                return
        self._advance(stop + 1)

    # -- lines ------------------------------------------------------------------------------------

    def _irregular_line(self) -> Iterator[Row | Problem]:
        """Yield the rows of a line that is not a single object: blank, a comment, broken, or part of a longer value."""
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
        """Yield the values that begin on this line; each may span several lines."""
        while True:
            end = self._find_end()
            if end < 0:
                yield from self._broken_value(place)
                return
            text = self._text_to(end)
            self._advance(end)
            head = self._skip_blanks()
            if head not in (b"{", b"[", b"\n", b""):
                yield from self._trailing_text(text, place)
                return
            yield from row_of(text, place)
            if head in (b"\n", b""):
                self._skip_line()
                return
            place = self._place()

    def _trailing_text(self, text: bytes, place: Place) -> Iterator[Problem]:
        """Yield the errors of a value, or an error about the text after it."""
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
        """Return the end of the value at the cursor; -1 if it breaks off, and `_break` is where to continue."""
        depth = 0
        scanned = 0
        indent = self._indent()
        self._has_comments = False
        record_lines: list[int] = []
        foreign_line = 0
        while True:
            token = _TOKEN.search(self._data, self._at + scanned)
            # Wait for one more byte: a backslash at the end of the buffer may escape the next one.
            waiting = (token is None or token.end() + 1 >= len(self._data)) and not self._ended
            reached = len(self._data) if waiting or token is None else token.end()
            self._is_too_long = reached - self._at > MAX_RECORD_BYTES
            if self._is_too_long:
                break
            if waiting:
                self._more()
                continue
            scanned = reached - self._at
            if token is None:
                self.open_ended = True
                break
            symbol = token.group()
            if symbol in (b"{", b"["):
                depth += 1
            elif symbol in (b"}", b"]"):
                depth -= 1
                if depth == 0:
                    return token.end()
            elif token.group(2):
                self._has_comments = True
            elif symbol[:1] == b"\n":
                scanned = token.start() + 1 - self._at
                if len(record_lines) < _LINES_TRIED and (opened := self._opens_record(scanned, indent, depth)):
                    record_lines.append(scanned)
                    if not self._is_open_value(opened):
                        break
                elif not foreign_line and not self._in_array and self._is_foreign_line(scanned, indent):
                    foreign_line = scanned
            elif token.group(1) != b'"':
                self.open_ended = token.group(1) is None and token.end() == len(self._data)
                break
        # If a line inside the value is a complete record, the value was cut off before it.
        self._break = next((at for at in record_lines if self._is_record_line(at)), scanned)
        self._breaks_at_line = 0 < foreign_line < self._break
        if self._breaks_at_line:
            self._break = foreign_line
        return -1

    def _text_to(self, end: int) -> bytes:
        """Return the text of the value from the cursor to `end`; its `//` lines are left blank, so that places hold."""
        text = self._data[self._at : end]
        return _COMMENT_LINES.sub(b"\n", text) if self._has_comments else text

    def _opens_record(self, offset: int, indent: int, depth: int) -> int:
        """Return the offset after the `{` that begins the line, indented by at most `indent`; 0 if there is none."""
        while len(self._data) <= self._at + offset + indent + 2 and not self._ended:
            self._more()
        start = self._at + offset
        match = _opening(indent, b"{").match(self._data, start)
        # At depth 1 a `}` ends the value.
        return match.end() - self._at if match and (depth > 1 or b"}" not in match.group()) else 0

    def _is_foreign_line(self, offset: int, indent: int) -> bool:
        """Whether the line at this offset, indented by at most `indent`, is not part of a printed object."""
        start = self._at + offset
        while self._data.find(b"\n", start) < 0 and len(self._data) - start < _STEP and self._more():
            start = self._at + offset
        stop = self._data.find(b"\n", start)
        line = self._data[start : stop if stop >= 0 else len(self._data)].rstrip(_SPACE)
        text = line.lstrip(_SPACE)
        if not text or len(line) - len(text) > indent or text[:1] in (b"}", b"]", b",", b":", b"{"):
            return False
        may_be_element = text[:1] in b'"[-0123456789' or text.rstrip(b", ") in (b"true", b"false", b"null")
        return not may_be_element or decode(text) is not ODD

    def _is_record_line(self, offset: int) -> bool:
        start = self._at + offset
        stop = self._data.find(b"\n", start)
        line = self._data[start : stop if stop >= 0 else len(self._data)]
        return isinstance(decode(line.strip(b" \t\r,")), dict)

    def _is_open_value(self, length: int) -> bool:
        """Whether the text up to here can begin a JSON value."""
        try:
            Scan(self._text_to(self._at + length).decode())
        except UnicodeDecodeError:
            return False
        except JsonError as error:
            return error.incomplete
        return False

    def _broken_value(self, place: Place) -> Iterator[Row | Problem]:
        """Yield the error of a value that never ends, and move to where the next one may begin."""
        indent, line = self._indent(), self._line
        if self._is_too_long:
            yield self._too_long("record")
        else:
            yield from diagnose(self._text_to(self._at + self._break).rstrip(_SPACE), place)
        self._advance(self._at + self._break)
        if self._at != self._line_start:
            self._skip_line()
        # A value that breaks on its first line is one broken line. Otherwise the rest of a printed object follows.
        if self._line > line + 1 and not self._breaks_at_line:
            self._skip_to_record(indent)

    def _skip_to_record(self, indent: int) -> None:
        """Move to the next line that opens a record or closes the array, indented by at most `indent`."""
        start = _opening(indent, b"{\\]" if self._in_array else b"{")
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
            if message := _misplaced(before, head):
                yield Problem("json_parse_error", "error", message, self._place())
            if head in (b"[", b",", b"]") and (head != b"[" or before in (b"", b"]")):
                self._at += 1
                before = head
            else:
                is_complete = yield from self._element(head)
                before = b"value" if is_complete else b"broken"

    def _element(self, head: bytes) -> Generator[Row | Problem, None, bool]:
        """Yield the row of one element; return whether its end is certain, so that a comma or `]` must follow."""
        place = self._place()
        end = self._find_end() if head in (b"{", b"[") else self._scalar_end()
        if end < 0:
            yield from self._broken_value(place)
            return False
        text = self._text_to(end).rstrip(_SPACE)
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


def _first_lines(block: bytes, count: int) -> bytes:
    *_, rest = block.split(b"\n", count)
    return block[: len(block) - len(rest)] or block


def _opening(indent: int, heads: bytes) -> re.Pattern[bytes]:
    """Match a line that begins with one of `heads`, indented by at most `indent`; also after `,` and as in `}, {`."""
    return re.compile(rb"[ \t]{0,%d}(?:[},][}, \t]*)?[%b]" % (indent, heads))


def _end(spaces: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = spaces.match(data, at)
    return match.end() if match else at


def _misplaced(before: bytes, head: bytes) -> str:
    """Return the error of `head` after `before` in an array; empty if it may be there."""
    if head == b",":
        return "expected a value, got ','" if before in (b"[", b",") else ""
    if head == b"]":
        return "a comma before ']' is not JSON. Remove it" if before == b"," else ""
    return "expected ',' or ']' before the next value" if before == b"value" else ""
