"""Data inside an HTML page: JSON in script elements that do not run, compressed where it is long.

The page decodes a chunk when it needs it, so that a file with many runs opens at once.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import IO

_PLAIN = 48 * 1024
"""A chunk of up to so many bytes stays readable JSON."""
_CHUNK = 256 * 1024
_LEVEL = 4
"""Compared with 9: a fifth of the time, 14 % more bytes."""


def element(id: str, json: bytes) -> bytes:
    """Return a script element with JSON that no browser runs, and that nothing in the JSON can close."""
    opening = f'<script id="{id}" type="application/'.encode()
    if len(json) <= _PLAIN:
        # JSON has `<` only inside of texts, where an escape means the same.
        return opening + b'json">' + json.replace(b"<", b"\\u003c") + b"</script>\n"
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = b64encode(compressor.compress(json) + compressor.flush())
    return opening + b'octet-stream">' + packed + b"</script>\n"


class ChunkWriter:
    """Writes JSON values in chunks `run-0`, `run-1`, …; `starts` has the number of the first value of each.

    `budget` is how many bytes `total` values may take; `room` says how many each of the remaining ones may have.
    """

    def __init__(self, stream: IO[bytes], budget: int, total: int) -> None:
        self.starts: list[int] = []
        self._stream = stream
        self._left, self._values_left = budget, max(total, 1)
        self._pending: list[bytes] = []
        self._size = self._count = 0
        self._ratio = 0.5

    def room(self) -> int:
        """Return how many bytes of JSON the next value may have, by how well the ones before were compressed."""
        return max(1_000, int(self._left / self._values_left / self._ratio))

    def add(self, json: bytes) -> None:
        if not self._pending:
            self.starts.append(self._count)
        self._pending.append(json)
        self._size += len(json)
        self._count += 1
        if self._size >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write the values that are still in memory."""
        if not self._pending:
            return
        written = element(f"run-{len(self.starts) - 1}", _list(self._pending))
        self._stream.write(written)
        self._left = max(0, self._left - len(written))
        self._values_left = max(1, self._values_left - len(self._pending))
        self._ratio = max(0.02, len(written) / self._size)
        self._pending, self._size = [], 0


def _list(values: Sequence[bytes]) -> bytes:
    return b"[" + b",\n".join(values) + b"]"
