"""Keys that must be unique or paired over a whole file: one hash and one line number per key, texts packed as JSON."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Struct

_DICT_LIMIT = 100_000
"""Up to this number of keys a dictionary is faster than importing numpy."""


class KeyColumn(Struct, frozen=True):
    """The keys of one block: their hashes, their lines, and the keys themselves packed as JSON."""

    hashes: array[int]
    lines: array[int]
    packed: bytes


def key_column(keys: list[str | int] | list[str], lines: array[int]) -> KeyColumn:
    """Pack the keys of one block."""
    # The hash of an integer is not unique enough: -1 and -2 share one, and so do 1 and 2**61.
    hashes = (hash(key) if isinstance(key, str) else hash((str(key),)) for key in keys)
    return KeyColumn(array("q", hashes), lines, orjson.dumps(keys))


class KeyIndex:
    """All keys of a file in order. Texts stay packed, so that millions of keys fit in memory."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._lines = array("I")
        self._packed: list[bytes] = []
        self._starts: list[int] = []
        self._unpacked: tuple[int, list[Any]] = (-1, [])

    def extend(self, keys: KeyColumn, offset: int) -> None:
        """Add the keys of a block that begins after line `offset`."""
        if keys.lines:
            self._starts.append(len(self._hashes))
            self._packed.append(keys.packed)
            self._hashes.extend(keys.hashes)
            self._lines.extend(array("I", map(offset.__add__, keys.lines)) if offset else keys.lines)

    def __len__(self) -> int:
        return len(self._hashes)

    def intersection(self, texts: set[str]) -> set[str]:
        """Return the texts that are keys."""
        wanted = {hash(text): text for text in texts}
        return {wanted[key] for key in self._hashes if key in wanted}

    def texts(self) -> Iterator[Any]:
        """Yield all keys as written."""
        for packed in self._packed:
            yield from orjson.loads(packed)

    def key(self, index: int) -> Any:
        block = bisect_right(self._starts, index) - 1
        if self._unpacked[0] != block:
            self._unpacked = (block, orjson.loads(self._packed[block]))
        return self._unpacked[1][index - self._starts[block]]

    def line(self, index: int) -> int:
        return self._lines[index]

    def at_line(self, line: int) -> Any:
        """Return the key on a line, or None."""
        index = bisect_right(self._lines, line) - 1
        return self.key(index) if index >= 0 and self._lines[index] == line else None

    def decreasing(self) -> Iterator[int]:
        """Yield the index of each integer key that is less than the integer key before it."""
        before: int | None = None
        for start, packed in zip(self._starts, self._packed, strict=True):
            for index, key in enumerate(orjson.loads(packed), start):
                if isinstance(key, int):
                    if before is not None and key < before:
                        yield index
                    before = key

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Yield (index of the first occurrence, index) for each repeated key, in file order."""
        if len(self._hashes) <= _DICT_LIMIT:
            first_index: dict[int, int] = {}
            for index, key in enumerate(self._hashes):
                if (first := first_index.setdefault(key, index)) != index:
                    yield first, index
            return
        import numpy as np

        order, starts = self._runs()
        firsts = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
        is_repeat = order != firsts
        pairs = zip(order[is_repeat].tolist(), firsts[is_repeat].tolist(), strict=True)
        yield from ((first, index) for index, first in sorted(pairs))

    def incomplete(self, sides: bytearray) -> list[int]:
        """Return the first index of each key that lacks one of its two sides (bits 1 and 2), in file order."""
        if len(sides) <= _DICT_LIMIT:
            sides_of: dict[int, int] = {}
            for key, side in zip(self._hashes, sides, strict=True):
                sides_of[key] = sides_of.get(key, 0) | side
            firsts = {key: index for index, key in reversed(list(enumerate(self._hashes)))}
            return sorted(firsts[key] for key, bits in sides_of.items() if bits != 3)
        import numpy as np

        order, starts = self._runs()
        bits = np.bitwise_or.reduceat(np.frombuffer(sides, np.uint8)[order], starts)
        indexes: list[int] = np.sort(order[starts[bits != 3]]).tolist()
        return indexes

    def _runs(self) -> Any:
        """Return the indexes sorted by key, and the position at which each key begins."""
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
