"""YAML documents as rows, read by the rules of YAML 1.2: `no` is a word, `on` is a word, dates are words.

Built from parser events, so that nesting, aliases and tags stay under our limits and every value keeps its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from evalloom.files.jsontext import MAX_DEPTH
from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Refused, Row, refused
from evalloom.model import Path, Place, quote

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NODES = 1_000_000
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class _Node(NamedTuple):
    value: Any
    places: dict[Path, Place]


class YamlReader:
    """Rows and problems of a YAML text: each element of a list, or each document that is an object."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.lines = 0

    def __iter__(self) -> Iterator[Row | Problem]:
        data = bytearray()
        for chunk in self._chunks:
            data += chunk
            if len(data) > MAX_RECORD_BYTES:
                limit = MAX_RECORD_BYTES // (1024 * 1024)
                raise refused("file_too_large", f"YAML of more than {limit} MiB is not read. Use JSONL")
        self.lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        builder: _Builder | None = None
        try:
            text = bytes(data).decode()
            builder = _Builder(text)
            yield from builder.rows()
        except UnicodeDecodeError as fault:
            line = data[: fault.start].count(b"\n") + 1
            yield Problem(
                "not_utf8", "error", f"is not UTF-8 here: {fault.reason}. Name its --encoding", Place(line, 1)
            )
        except Refused as fault:
            yield fault.problem
        except yaml.MarkedYAMLError as fault:
            place = _place(fault.problem_mark) if fault.problem_mark else Place()
            reason = " ".join(part for part in (fault.context, fault.problem) if part)
            yield Problem("yaml_parse_error", "error", f"is not YAML here: {reason}", place)
        except yaml.YAMLError as fault:
            yield Problem("yaml_parse_error", "error", f"is not YAML: {str(fault).splitlines()[0]}")
        finally:
            if builder is not None:
                yield from builder.problems


class _Builder:
    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=_LOADER)
        self._anchors: dict[str, tuple[_Node, int]] = {}
        self._nodes = 0
        self.problems: list[Problem] = []

    def rows(self) -> Iterator[Row | Problem]:
        for event in self._events:
            if isinstance(event, yaml.SequenceStartEvent):
                yield from self._elements()
            elif isinstance(event, yaml.NodeEvent) and not _is_empty(event):
                place = _place(event.start_mark)
                node = self._node(event, (), 0)
                yield Row(node.value, *place, b"", node.places)

    def _elements(self) -> Iterator[Row | Problem]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = _place(event.start_mark)
            node = self._node(event, (), 1)
            yield Row(node.value, *place, b"", node.places)

    def _node(self, event: Any, path: Path, depth: int) -> _Node:
        place = _place(event.start_mark)
        self._count(1, place)
        if depth > MAX_DEPTH:
            raise refused("nesting_too_deep", f"at most {MAX_DEPTH} levels of nesting are read, got more", place)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), path, place)
        before = self._nodes
        if isinstance(event, yaml.ScalarEvent):
            node = _Node(_scalar(event, place), {path: place})
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(path, place, depth)
        else:
            node = self._mapping(path, place, depth)
        if event.anchor:
            relative = {at[len(path) :]: where for at, where in node.places.items()}
            self._anchors[event.anchor] = (_Node(node.value, relative), self._nodes - before + 1)
        return node

    def _count(self, nodes: int, place: Place) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise refused("file_too_large", f"at most {_MAX_NODES:,} values are read from one YAML file", place)

    def _alias(self, anchor: str, path: Path, place: Place) -> _Node:
        if anchor not in self._anchors:
            raise refused("yaml_parse_error", f"the alias {quote(anchor)} has no anchor before it", place)
        node, size = self._anchors[anchor]
        # Counted as if written out: a handful of nested aliases can stand for billions of values.
        self._count(size, place)
        return _Node(node.value, {path + at: where for at, where in node.places.items()})

    def _sequence(self, path: Path, place: Place, depth: int) -> _Node:
        places = {path: place}
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node = self._node(event, (*path, len(values)), depth + 1)
            values.append(node.value)
            places.update(node.places)
        return _Node(values, places)

    def _mapping(self, path: Path, place: Place, depth: int) -> _Node:
        places = {path: place}
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_place = _place(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                raise refused("yaml_parse_error", "expected a plain word as key", key_place)
            key = str(event.value)
            node = self._node(next(self._events), (*path, key), depth + 1)
            if key == "<<" and event.implicit[0]:
                merged.update(_merged(node.value, key_place))
                continue
            if key in values:
                message = f"the key {quote(key)} is written twice; the last one counts"
                self.problems.append(Problem("duplicate_key", "warning", message, key_place))
            values[key] = node.value
            places.update(node.places)
        return _Node({**merged, **values}, places)


def _merged(value: Any, place: Place) -> dict[str, Any]:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise refused("yaml_parse_error", "'<<' merges objects, got something else", place)
    found: dict[str, Any] = {}
    for part in reversed(parts):
        found.update(part)
    return found


def _scalar(event: Any, place: Place) -> Any:
    """A scalar by the core schema of YAML 1.2; quoted text is always a string."""
    text: str = event.value
    if event.tag not in (None, "!"):
        return _tagged(event.tag, text, place)
    if not event.implicit[0]:
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NOT_FINITE.fullmatch(text):
        raise refused("yaml_parse_error", f"{text!r} is no JSON number. Write null or a string", place)
    return _number(text)


def _number(text: str) -> Any:
    if _INT.fullmatch(text):
        if text.startswith("0o"):
            return int(text[2:], 8)
        if text.startswith("0x"):
            return int(text, 16)
        # A number beyond 64 bits is an id somebody wrote without quotes; as text it keeps every digit.
        return int(text) if len(text) <= 20 and -(2**63) <= int(text) < 2**64 else text
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if abs(value) != float("inf") else text
    return text


def _tagged(tag: str, text: str, place: Place) -> Any:
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "str":
        return text
    if kind in ("int", "float", "bool", "null"):
        return _number(text) if kind in ("int", "float") else {"true": True, "false": False}.get(text.lower())
    raise refused("yaml_parse_error", f"the tag {quote(tag)} is not read; only plain data is", place)


def _is_empty(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and not event.value


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)
