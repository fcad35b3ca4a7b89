"""Reads any YAML from the events of PyYAML: with limits on nesting, aliases and tags, and the place of each value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml
from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Place
from evalloom.core.text import quote
from evalloom.files.jsontext import MAX_DEPTH, JsonError, offset_place
from evalloom.files.rows import Problem, Refused, Row, not_utf8, refused
from evalloom.files.yaml_scalars import FALSE, NULL, TRUE, number, plain_value

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NODES = 1_000_000
_PLACED_DEPTH = 16
"""Deeper values have no position: their paths would take more memory than the values."""


class _Anchored(Struct, frozen=True):
    """A value with an anchor: the positions in it relative to its root, its number of nodes, and its depth."""

    value: Any
    places: list[tuple[Path, Place]]
    size: int
    depth: int


def read_rows(data: bytes) -> Iterator[Row | Problem]:
    """Yield the list elements of a YAML text, or its documents that are objects."""
    yield from _read(data, _Builder.rows)


def read_whole(data: bytes) -> Iterator[Row | Problem]:
    """Yield the first document of a YAML text as one row, also where it is a list."""
    yield from _read(data, _Builder.whole)


def _read(data: bytes, read: Callable[[_Builder], Iterator[Row | Problem]]) -> Iterator[Row | Problem]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield not_utf8(data, error, Place(1, 1))
        return
    builder = _Builder(text)
    try:
        yield from read(builder)
    except Refused as error:
        builder.problems.append(error.problem)
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark) if error.problem_mark else Place()
        reason = " ".join(part for part in (error.context, error.problem) if part)
        builder.problems.append(Problem("yaml_parse_error", "error", f"is not YAML here: {reason}", place))
    except yaml.reader.ReaderError as error:
        message = f"the character {chr(int(error.character))!r} is not allowed in YAML. Remove or escape it"
        # A ReaderError has no line and column, so search for the character.
        match = _NOT_ALLOWED.search(text)
        place = offset_place(text, match.start(), 1, 1) if match else Place()
        builder.problems.append(Problem("yaml_parse_error", "error", message, place))
    except yaml.YAMLError as error:
        message = f"is not YAML: {quote(str(error), 200)}"
        builder.problems.append(Problem("yaml_parse_error", "error", message))
    yield from builder.problems


class _Builder:
    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=_LOADER)
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0
        self._deepest = 0
        self._places: list[tuple[Path, Place]] = []
        """The position of each value of the row so far, in file order."""
        self.problems: list[Problem] = []
        """The problems of the row so far."""

    def rows(self) -> Iterator[Row | Problem]:
        for event in self._events:
            if isinstance(event, yaml.SequenceStartEvent):
                while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                    yield from self._row(event)
            elif isinstance(event, yaml.NodeEvent) and not (isinstance(event, yaml.ScalarEvent) and not event.value):
                yield from self._row(event)

    def whole(self) -> Iterator[Row | Problem]:
        """Yield the first document as one row."""
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                yield from self._row(event)
                return

    def _row(self, event: Any) -> Iterator[Row | Problem]:
        self._places, self.problems = [], []
        value = self._value(event, ())
        problems, self.problems = self.problems, []
        yield from problems
        if all(problem.severity != "error" for problem in problems):
            yield Row(value, *_place(event.start_mark), b"", dict(self._places))

    def _refuse(self, message: str, place: Place, code: str = "yaml_parse_error") -> None:
        """Record why the row is refused; it is still read to its end, to reach the next one."""
        self.problems.append(Problem(code, "error", message, place))

    def _value(self, event: Any, path: Path) -> Any:
        place = _place(event.start_mark)
        self._count(1, place)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), path, place)
        first, nodes, deepest = len(self._places), self._nodes, self._deepest
        self._deepest = len(path)
        if len(path) <= _PLACED_DEPTH:
            self._places.append((path, place))
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, place)
        else:
            self._go_down(len(path) + 1, place)
            is_list = isinstance(event, yaml.SequenceStartEvent)
            if event.tag not in (None, "!", f"tag:yaml.org,2002:{'seq' if is_list else 'map'}"):
                self._refuse(_unknown_tag(event.tag).message, place)
            value = self._sequence(path) if is_list else self._mapping(path)
        if event.anchor:
            places = [(at[len(path) :], where) for at, where in self._places[first:]]
            self._anchors[event.anchor] = _Anchored(value, places, self._nodes - nodes + 1, self._deepest - len(path))
        self._deepest = max(self._deepest, deepest)
        return value

    def _scalar(self, event: Any, place: Place) -> Any:
        try:
            return _scalar(event)
        except JsonError as error:
            self._refuse(error.message, place, error.code)
            return None

    def _count(self, nodes: int, place: Place) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise refused("file_too_large", f"at most {_MAX_NODES:,} values are read from one YAML file", place)

    def _go_down(self, depth: int, place: Place) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > MAX_DEPTH:
            raise refused("nesting_too_deep", f"at most {MAX_DEPTH} levels of nesting are read, got more", place)

    def _alias(self, anchor: str, path: Path, place: Place) -> Any:
        if anchor not in self._anchors:
            self._refuse(f"the alias {quote(anchor)} has no anchor before it", place)
            return None
        anchored = self._anchors[anchor]
        # Count the expanded value: a few nested aliases can expand to billions of values.
        self._count(anchored.size, place)
        self._go_down(len(path) + anchored.depth, place)
        for at, where in anchored.places:
            if len(path) + len(at) <= _PLACED_DEPTH:
                self._places.append((path + at, where))
        return anchored.value

    def _sequence(self, path: Path) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, (*path, len(values))))
        return values

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_place = _place(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse("expected a plain word as key", key_place)
                self._value(event, (*path, "?"))
            key = str(getattr(event, "value", ""))
            value = self._value(next(self._events), (*path, key))
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                parts = value if isinstance(value, list) else [value]
                if not all(isinstance(part, dict) for part in parts):
                    self._refuse("'<<' merges objects, got something else", key_place)
                    continue
                for part in reversed(parts):
                    merged.update(part)
                continue
            if key in values:
                message = f"the key {quote(key)} is written twice; the last one counts"
                self.problems.append(Problem("duplicate_key", "warning", message, key_place))
            values[key] = value
        return {**merged, **values}


def _scalar(event: Any) -> Any:
    """Resolve a scalar by the core schema of YAML 1.2; quoted text is always a string."""
    text: str = event.value
    if event.tag not in (None, "!"):
        return _tagged(event.tag, text)
    if not event.implicit[0]:
        return text
    return plain_value(text)


def _tagged(tag: str, text: str) -> Any:
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "str":
        return text
    if kind == "null" and text in NULL:
        return None
    if kind == "bool" and text in (*TRUE, *FALSE):
        return text in TRUE
    if kind in ("int", "float") and not isinstance(value := number(text), str):
        return value
    raise _unknown_tag(tag)


def _unknown_tag(tag: str) -> JsonError:
    return JsonError("yaml_parse_error", f"the tag {quote(tag)} is not supported; use plain data")


_NOT_ALLOWED = lazy_pattern("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
