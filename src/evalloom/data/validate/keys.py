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


class KeyBuilder:
    """Collects the keys of one block."""

    def __init__(self) -> None:
        self.keys: list[str | int] = []
        """The keys that are not packed yet."""
        self.lines = array("I")
        self._hashes = array("q")
        self._packed: list[bytes] = []

    def pack(self) -> None:
        """Hash and pack the keys, best soon after they were read, while they are in the processor's cache."""
        keys = self.keys
        if not keys:
            return
        types = set(map(type, keys))
        if types == {str}:
            self._hashes.extend(map(hash, keys))
        elif types == {int}:
            # As below, without a step of Python for each key.
            self._hashes.extend(map(hash, zip(map(str, keys))))
        else:
            # The hash of an integer is not unique enough: -1 and -2 share one, and so do 1 and 2**61.
            self._hashes.extend(hash(key if isinstance(key, str) else (str(key),)) for key in keys)
        self._packed.append(orjson.dumps(keys)[1:-1])
        keys.clear()

    def column(self) -> KeyColumn:
        self.pack()
        return KeyColumn(self._hashes, self.lines, b"[%b]" % b",".join(self._packed))


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
            self._lines.extend(_moved(keys.lines, offset) if offset else keys.lines)

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

        ordered = np.sort(np.frombuffer(self._hashes, np.int64))
        if not np.any(ordered[1:] == ordered[:-1]):
            return
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

        hashes, bits = np.frombuffer(self._hashes, np.int64), np.frombuffer(sides, np.uint8)
        alone = np.setxor1d(_distinct(hashes[bits == 1]), _distinct(hashes[bits == 2]), assume_unique=True)
        if not len(alone):
            return []
        places = np.minimum(np.searchsorted(alone, hashes), len(alone) - 1)
        indexes = np.flatnonzero(alone[places] == hashes)
        _, starts = np.unique(hashes[indexes], return_index=True)
        incomplete: list[int] = np.sort(indexes[starts]).tolist()
        return incomplete

    def _runs(self) -> Any:
        """Return the indexes sorted by key, and the position at which each key begins."""
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _distinct(hashes: Any) -> Any:
    """Return the hashes in order, each once; `np.unique` takes a hundred times as long for them."""
    import numpy as np

    ordered = np.sort(hashes)
    return ordered[np.concatenate((ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]))]


def _moved(lines: array[int], offset: int) -> array[int]:
    import numpy as np  # deferred: only a file that is read in ranges has an offset

    moved = np.frombuffer(lines, np.uintc) + np.uintc(offset)
    return array("I", moved.tobytes())
