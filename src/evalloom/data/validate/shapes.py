"""Recognizes lines with the keys and types of a record that was checked before, without decoding them.

A regular expression is made from one clean record. A line that it matches is JSON with the same keys in the same order,
so it has no key twice, no number that loses digits and no finding: decoding it would show nothing new (decision 22).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from evalloom.core.model import Record
from evalloom.data.dialect import INTEGER, Dialect, PlainFields, list_of
from evalloom.files.rows import Recognized

_SEPARATORS = ((", ", ": "), (",", ":"))
_STRING = '"[^"]*+"'
# Python before 3.11.5 matches groups that are repeated possessively in the wrong places, so only characters are.
# Without surrogates: the scanner must tell which half is missing.
_UNICODE_ESCAPE = "|u(?![dD][89abAB])[0-9a-fA-F]{4}"
_ESCAPED_STRING = rf'"[^\\"]*+(?:\\(?:["\\/bfnrt]{_UNICODE_ESCAPE})[^\\"]*+)*"'
# No more than 15 digits, which a float always holds.
_NUMBER = rf"(?:{INTEGER}|-?(?:0|[1-9][0-9]{{0,4}}+)\.[0-9]{{1,10}}+)"
_MOST_SHAPES = 8
_MOST_TRIED = 64
_LONGEST_RECORD = 100_000
_LONGEST = 10_000
"""The most characters of a regular expression; a longer one takes long to compile."""
_FEWEST_LINES = 8
"""A shorter run of lines is not worth its own block."""
_FIRST_WAIT = 32
_LONGEST_WAIT = 1_000_000


class Shapes:
    """The shapes of the records in one file, learned while it is read."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._shapes: dict[str, Shape] = {}
        self._tried = 0
        self.wait = _FIRST_WAIT
        """The number of lines to decode before the next try; it grows while nothing is recognized."""

    def learn(self, record: Record, text: bytes) -> None:
        """Make a shape of a clean record, if its dialect says which of its values matter."""
        if len(self._shapes) >= _MOST_SHAPES or self._tried >= _MOST_TRIED or len(text) > _LONGEST_RECORD:
            return
        self._tried += 1
        fields = self._dialect.plain_fields(record)
        if fields is None or not self._dialect.is_case(record) or not self._has_plain_identity(record, fields):
            return
        for separators in _SEPARATORS:
            if json.dumps(record, ensure_ascii=False, separators=separators).encode() == text:
                shape = Shape(record, fields, self._keys(), separators)
                if len(shape.regex) <= _LONGEST:
                    self._shapes.setdefault(shape.regex, shape)
                    self.wait = _FIRST_WAIT

    def _keys(self) -> tuple[str, ...]:
        """Return the fields with what is checked over the whole file."""
        pairing = self._dialect.pairing
        return (self._dialect.id_field, *((pairing.field, pairing.side_field) if pairing else ()))

    def _has_plain_identity(self, record: Record, fields: PlainFields) -> bool:
        """Whether the identity and the pair of a record are values of fields, as in all records of its shape."""
        name, identity, pairing = self._dialect.id_field, self._dialect.identity(record), self._dialect.pairing
        if pairing is not None and not {pairing.field, pairing.side_field} <= fields.patterns.keys() & record.keys():
            return False
        if identity is None:
            return name not in record
        return name in fields.patterns and identity == record[name]

    def recognize(self, block: bytes, line: int) -> Recognized | None:
        """Return the lines at the start of a block that have one shape; None if they are few."""
        first = block[: block.find(b"\n") + 1]
        for shape in self._shapes.values():
            if shape.matches(first):
                if recognized := shape.recognize(block, line):
                    self.wait = _FIRST_WAIT
                    return recognized
                break
        self.wait = min(2 * self.wait, _LONGEST_WAIT)
        return None


class Shape:
    """The lines with the keys, the order, the spacing and the types of one record."""

    def __init__(
        self, record: Record, fields: PlainFields, columns: tuple[str, ...], separators: tuple[str, str]
    ) -> None:
        self._record = record
        self._fields = fields
        self._separators = separators
        self.keys = tuple(record)
        self._columns = [name for name in record if name in columns]
        self.regex = self._written(_STRING)

    def matches(self, line: bytes) -> bool:
        """Whether one line has this shape."""
        try:
            return self._pattern(line).match(line.decode()) is not None
        except UnicodeDecodeError:
            return False

    def recognize(self, block: bytes, line: int) -> Recognized | None:
        """Return the lines at the start of a block that have this shape, with the columns of values that matter."""
        import numpy as np  # deferred: only large files are read in this way

        try:
            text = block.decode()
        except UnicodeDecodeError:
            return None
        pattern = self._pattern(block)
        rows = pattern.findall(text)
        # A match ends with a line break. If there are as many control characters, they are those, and all lines match.
        if not block.endswith(b"\n") or np.count_nonzero(np.frombuffer(block, np.uint8) < 32) != len(rows):
            rows, block = _prefix(pattern, text)
            if np.count_nonzero(np.frombuffer(block, np.uint8) < 32) != len(rows):
                return None
        if len(rows) < _FEWEST_LINES:
            return None
        values = list(zip(*rows, strict=True))
        columns: dict[str, Sequence[Any]] = {name: values[index - 1] for name, index in self._groups(pattern)}
        for name in columns:
            if self._fields.patterns[name] == INTEGER:
                columns[name] = list(map(int, columns[name]))
        return Recognized(self, columns, line, block, len(rows))

    def _groups(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, int]]:
        """Yield the captured fields with the number of the group of each."""
        for number, name in enumerate(self._columns):
            yield name, pattern.groupindex[f"field{number}"]

    def _pattern(self, text: bytes) -> re.Pattern[str]:
        return self._with_escapes if b"\\" in text else self._without_escapes

    @cached_property
    def _without_escapes(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    @cached_property
    def _with_escapes(self) -> re.Pattern[str]:
        return re.compile(self._written(_ESCAPED_STRING))

    def _written(self, string: str) -> str:
        """Return the regular expression; empty groups make `findall` return tuples where there are few columns."""
        patterns, not_first = self._fields.patterns, "|".join(map(re.escape, self._fields.not_first))
        if not_first:
            string = string.replace('"', f'"(?!{not_first})', 1).replace(_UNICODE_ESCAPE, "")
        members = {
            name: self._declared(patterns[name], value, string) if name in patterns else self._of(value, string)
            for name, value in self._record.items()
        }
        for number, name in enumerate(self._columns):
            # A text is captured without its quotes.
            members[name] = re.sub(r'^("?)(.*?)("?)$', rf"\1(?P<field{number}>\2)\3", members[name])
        return rf"(?m)^{self._object(members)}\n" + "()" * max(0, 2 - len(self._columns))

    def _declared(self, pattern: str, value: Any, string: str) -> str:
        """Return the pattern of a value that matters: without escapes, because those would have to be decoded."""
        if not pattern:
            return _literal(value, self._separators)
        pattern = pattern.replace(", ", self._separators[0])
        return pattern if string == _STRING else pattern.replace('[^"]', r'[^"\\]')

    def _object(self, members: dict[str, str]) -> str:
        comma, colon = self._separators
        return r"\{" + comma.join(f"{_literal(key)}{colon}{value}" for key, value in members.items()) + r"\}"

    def _of(self, value: Any, string: str) -> str:
        """Return a pattern for the values of the same type; a list without texts matches only itself."""
        if isinstance(value, bool):
            return "(?:true|false)"
        if isinstance(value, int | float):
            return _NUMBER
        if isinstance(value, str):
            return string
        if isinstance(value, dict):
            return self._object({key: self._of(item, string) for key, item in value.items()})
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return list_of(string).replace(", ", self._separators[0])
        return _literal(value, self._separators)


def _literal(value: Any, separators: tuple[str, str] = _SEPARATORS[0]) -> str:
    return re.escape(json.dumps(value, ensure_ascii=False, separators=separators))


def _prefix(pattern: re.Pattern[str], text: str) -> tuple[list[tuple[str, ...]], bytes]:
    """Return the groups of the lines at the start of a text that match, and those lines."""
    rows: list[tuple[str, ...]] = []
    end = 0
    for match in pattern.finditer(text):
        if match.start() != end:
            break
        rows.append(match.groups())
        end = match.end()
    return rows, text[:end].encode()
