"""Reads YAML as most settings are written, without PyYAML, whose import takes longer than all else with a small file.

Plain YAML has block mappings and lists, flow mappings and lists of scalars, scalars on one line, and comments. For
anything else `read_plain` returns None, so the result never differs from that of the events of PyYAML (decision 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Place
from evalloom.files.jsontext import JsonError
from evalloom.files.rows import Row
from evalloom.files.yaml_scalars import plain_value

MOST_BYTES = 16 * 1024
"""For a longer text the time of the import matters little, and the limits on its values would have to be tested."""
_MOST_LEVELS = 12
_KEY = r"[A-Za-z_][A-Za-z0-9_-]{0,99}"
_QUOTED = r"\"[^\"\\]*\"|'[^']*'"
_FLOW_PLAIN = r"[\w./~+$](?:[\w ./~+$-]*[\w./~+$-])?"
_FLOW_ITEM = rf"(?:{_QUOTED}|{_FLOW_PLAIN})"
_FLOW_MEMBER = rf"{_KEY}: +{_FLOW_ITEM}"
_FLOW = rf"\[{_FLOW_ITEM}(?:, +{_FLOW_ITEM})*\]|\{{{_FLOW_MEMBER}(?:, +{_FLOW_MEMBER})*\}}"
# A plain scalar ends before a comment, and has no `: `, which would make it a key.
_PLAIN = r"(?:[\w./~+$<(]|-(?=[^ ]))(?:(?!: |:$).)*?"
_LINE = lazy_pattern(
    rf"(?P<dash>- +)?(?:(?P<key>{_KEY}):(?: +|$))?(?P<value>{_QUOTED}|{_FLOW}|{_PLAIN})?(?: *$|(?:(?<= )| +)#.*)"
)
_FLOW_PARTS = lazy_pattern(rf"(?:(?P<key>{_KEY}): +)?(?P<item>{_FLOW_ITEM})")


class _NotPlain(Exception):
    """The text has something that only PyYAML reads."""


class _Token:
    """A dash, a key or a value, with its position."""

    __slots__ = ("column", "kind", "line", "text")

    def __init__(self, kind: str, text: str, line: int, column: int) -> None:
        self.kind = kind
        self.text = text
        self.line = line
        self.column = column


def read_plain(data: bytes) -> list[Row] | None:
    """Return the rows of a text: the elements of its list, or its object; None if it is not plain."""
    if len(data) > MOST_BYTES:
        return None
    try:
        return list(_Parser(list(_tokens(data.decode()))).rows())
    except (UnicodeDecodeError, JsonError, _NotPlain):
        return None


def _tokens(text: str) -> Iterator[_Token]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.isprintable():
            raise _NotPlain
        content = line.lstrip(" ")
        if not content or content.startswith("#"):
            continue
        match = _LINE.fullmatch(content)
        if match is None or not (match["key"] or (match["dash"] and match["value"])):
            raise _NotPlain
        for kind in ("dash", "key", "value"):
            if match[kind]:
                yield _Token(kind, match[kind], number, len(line) - len(content) + match.start(kind) + 1)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._places: dict[Path, Place] = {}
        """The position of each value of the row so far, in file order."""

    def rows(self) -> Iterator[Row]:
        first = self._token()
        if first.kind == "dash":
            while self._is_at("dash", first.column):
                self._places = {}
                value = self._below(())
                yield Row(value, *self._places[()], b"", self._places)
        else:
            yield Row(self._node(()), first.line, first.column, b"", self._places)
        if self._at < len(self._tokens):
            raise _NotPlain

    def _token(self) -> _Token:
        if self._at >= len(self._tokens):
            raise _NotPlain
        return self._tokens[self._at]

    def _is_at(self, kind: str, column: int) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token is not None and token.kind == kind and token.column == column

    def _below(self, path: Path) -> Any:
        """Read the value of the dash or key at the cursor."""
        owner = self._token()
        self._at += 1
        token = self._token()
        # A list may be as far to the left as its key.
        is_inside = token.column > owner.column or (owner.kind == "key" and self._is_at("dash", owner.column))
        if not is_inside or len(path) > _MOST_LEVELS:
            raise _NotPlain
        return self._node(path)

    def _node(self, path: Path) -> Any:
        token = self._token()
        self._places[path] = Place(token.line, token.column)
        if token.kind == "value":
            self._at += 1
            return self._value(token, path)
        if token.kind == "dash":
            items: list[Any] = []
            while self._is_at("dash", token.column):
                items.append(self._below((*path, len(items))))
            return items
        members: dict[str, Any] = {}
        while self._is_at("key", token.column):
            key = self._token().text
            if key in members:
                raise _NotPlain  # with a warning at its place
            members[key] = self._below((*path, key))
        return members

    def _value(self, token: _Token, path: Path) -> Any:
        if token.text[0] not in "[{":
            return _scalar(token.text)
        parts = list(_FLOW_PARTS.finditer(token.text))
        keys = [part["key"] or number for number, part in enumerate(parts)]
        if len(set(keys)) < len(keys):
            raise _NotPlain
        for key, part in zip(keys, parts, strict=True):
            self._places[*path, key] = Place(token.line, token.column + part.start("item"))
        values = [_scalar(part["item"]) for part in parts]
        return values if token.text[0] == "[" else dict(zip(keys, values, strict=True))


def _scalar(text: str) -> Any:
    return text[1:-1] if text[0] in "'\"" else plain_value(text)
