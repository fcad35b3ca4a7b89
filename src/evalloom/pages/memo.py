"""Results that take long to compute, kept as long as the batches that they are over do not change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from time import monotonic
from typing import Any, TypeVar

from msgspec import Struct

from evalloom.pages.library import Library

_KEPT = 16
_FRESH_S = 2.0
"""For how long a result over a batch that is being written is used; longer if it takes long to compute."""
T = TypeVar("T")


class _Entry(Struct, frozen=True):
    value: Any
    stamp: Hashable
    until: float


class Memo:
    """The last results, by what was asked. All methods are thread-safe."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(
        self, key: Hashable, batches: Iterable[str], compute: Callable[[], T], also: Callable[[], Hashable] = lambda: ()
    ) -> T:
        """Return a result over some batches; it is computed again if one of them, or what `also` returns, changed."""
        stamps = [self._library.stamp(id) for id in batches]
        stamp, is_written = (tuple(stamps), also()), any(stamp[0] for stamp in stamps)
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:  # two requests for one result compute it once
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None and (entry.stamp == stamp or (is_written and monotonic() < entry.until)):
                    self._entries.move_to_end(key)
                    value: T = entry.value
                    return value
            start = monotonic()
            value = compute()
            taken = monotonic() - start
            with self._lock:
                self._entries[key] = _Entry(value, stamp, monotonic() + max(_FRESH_S, 5 * taken))
                self._entries.move_to_end(key)
                while len(self._entries) > _KEPT:
                    old, _ = self._entries.popitem(last=False)
                    self._computing.pop(old, None)
            return value
