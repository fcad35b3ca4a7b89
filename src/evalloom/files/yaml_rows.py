"""Reads YAML documents by the rules of YAML 1.2, as rows; PyYAML is imported only for a text that is not plain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from evalloom.files.rows import MAX_RECORD_BYTES, Problem, Row, refused
from evalloom.files.yaml_plain import read_plain


class YamlReader:
    """Iterates over the rows and problems of a YAML text: list elements, or documents that are objects."""

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
        rows = read_plain(bytes(data))
        if rows is None:
            # Imported here: the import of yaml takes a tenth of a small run.
            from evalloom.files import yaml_events

            yield from yaml_events.read_rows(bytes(data))
        else:
            yield from rows


def read_whole(data: bytes) -> tuple[Any, list[Problem]]:
    """Return the value of a YAML text that is one value, also where it is a list; and its problems."""
    from evalloom.files import yaml_events  # deferred, as above

    items = list(yaml_events.read_whole(data))
    values = [item.value for item in items if isinstance(item, Row)]
    return values[0] if values else None, [item for item in items if isinstance(item, Problem)]
