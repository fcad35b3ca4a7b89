"""What must be unique or paired over a whole file, kept small: a hash and a line per key, its text packed away."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import orjson

from evalloom.data.validate.tally import KeyColumn

_FEW = 100_000
"""Up to so many keys a plain dictionary is done before numpy is imported."""


class Keys:
    """Keys in file order. Millions of them fit, because their texts are kept as JSON, a block at a time."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._lines = array("I")
        self._packed: list[bytes] = []
        self._starts: list[int] = []
        self._unpacked: tuple[int, list[Any]] = (-1, [])

    def extend(self, keys: KeyColumn, offset: int) -> None:
        """Adds the keys of one block, whose lines are counted from `offset`."""
        if keys.lines:
            self._starts.append(len(self._hashes))
            self._packed.append(keys.packed)
            self._hashes.extend(keys.hashes)
            self._lines.extend(array("I", map(offset.__add__, keys.lines)) if offset else keys.lines)

    def __len__(self) -> int:
        return len(self._hashes)

    def among(self, texts: set[str]) -> set[str]:
        """Those of the texts that are keys."""
        wanted = {hash(text): text for text in texts}
        return {wanted[key] for key in self._hashes if key in wanted}

    def texts(self) -> Iterator[Any]:
        """All keys, as they were written."""
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
        """The key on a line, None when there is none."""
        index = bisect_right(self._lines, line) - 1
        return self.key(index) if index >= 0 and self._lines[index] == line else None

    def falls(self) -> Iterator[int]:
        """The indexes of whole numbers that are less than the one before them."""
        before: int | None = None
        for start, packed in zip(self._starts, self._packed, strict=True):
            for index, key in enumerate(orjson.loads(packed), start):
                if isinstance(key, int):
                    if before is not None and key < before:
                        yield index
                    before = key

    def repeats(self) -> Iterator[tuple[int, int]]:
        """For every key that was there before: the index where it first was, and its own, in file order."""
        if len(self._hashes) <= _FEW:
            seen: dict[int, int] = {}
            for index, key in enumerate(self._hashes):
                if (first := seen.setdefault(key, index)) != index:
                    yield first, index
            return
        import numpy as np

        order, starts = self._runs()
        firsts = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
        found = order != firsts
        pairs = zip(order[found].tolist(), firsts[found].tolist(), strict=True)
        yield from ((first, index) for index, first in sorted(pairs))

    def one_sided(self, sides: bytearray) -> list[int]:
        """The first index of every key whose sides (bits 1 and 2) are not both there, in file order."""
        if len(sides) <= _FEW:
            both: dict[int, int] = {}
            for key, side in zip(self._hashes, sides, strict=True):
                both[key] = both.get(key, 0) | side
            firsts = {key: index for index, key in reversed(list(enumerate(self._hashes)))}
            return sorted(firsts[key] for key, seen in both.items() if seen != 3)
        import numpy as np

        order, starts = self._runs()
        seen = np.bitwise_or.reduceat(np.frombuffer(sides, np.uint8)[order], starts)
        found: list[int] = np.sort(order[starts[seen != 3]]).tolist()
        return found

    def _runs(self) -> Any:
        """The indexes ordered by key, and where in that order each key begins."""
        import numpy as np

        hashes = np.frombuffer(self._hashes, np.int64)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
