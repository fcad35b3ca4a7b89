"""Executes replays: assembles rows a window at a time and stores each window before reporting it."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from evalloom.core.clock import utc_now_z
from evalloom.core.digest import sha256_base64
from evalloom.replay.recipe.assemble import AssembledRow, Recipe
from evalloom.replay.recipe.trace import Outcome, RunSummary
from evalloom.replay.requests import not_found
from evalloom.replay.resolvers import Resolution
from evalloom.replay.store.records import WINDOW, Counts, DatasetDeleted, Pack, PackDeleted, Replay, Window
from evalloom.replay.store.running import RunningMark
from evalloom.settings.keys import Redactor

if TYPE_CHECKING:
    from evalloom.replay.service import ReplayService

_FORMAT = "2"
"""Incremented when the same recipe and row would give a different pack, so that stored packs are not reused."""
MODEL_WINDOW = 32
"""Rows per window when a model is called: its answers cost money, and a crash loses those not yet stored."""

Value = TypeVar("Value")


class CachedPack(NamedTuple):
    """The id of a stored pack with the summaries of its runs, ready to fill in for another replay."""

    pack_id: int
    counts: Counts
    pieces: list[bytes]
    """The summaries as JSON, split where the id of the replay and the time go."""


class LruCache(Generic[Value]):
    """Keeps the most recently used values; safe to use from several threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, Value] = OrderedDict()

    def get(self, key: str) -> Value | None:
        value = self._values.get(key)
        if value is not None:
            # Another thread may have evicted it since.
            with suppress(KeyError):
                self._values.move_to_end(key)
        return value

    def put(self, key: str, value: Value) -> Value:
        self._values[key] = value
        if len(self._values) > self._size:
            self._values.popitem(last=False)
        return value

    def discard(self, key: str) -> None:
        self._values.pop(key, None)


class ReplayRun:
    """Executes one replay, a window of rows at a time."""

    def __init__(
        self, service: ReplayService, replay: Replay, digest: str, recipe: Recipe, rows: range | None = None
    ) -> None:
        """`rows` is the range of a stored dataset to replay; without it, the caller passes the rows in."""
        self.replay = replay if rows is None else replay._replace(rows_requested=len(rows))
        self.recipe = recipe
        self._is_stored_dataset = rows is not None
        size = MODEL_WINDOW if replay.profile else WINDOW
        self.windows = [(first, min(size, rows.stop - first)) for first in rows[::size]] if rows is not None else []
        self._service = service
        self._store = service.store
        self._digest = digest
        self._resolved: dict[str, Resolution] = {}
        self._deadline = service.deadline()
        self._is_first = True
        self._mark: RunningMark | None = None

    def __enter__(self) -> ReplayRun:
        return self

    def __exit__(self, *error: object) -> None:
        """End the replay: without all rows it is now interrupted."""
        if self._mark is not None:
            self._mark.close()

    def run_window(self, first: int, count: int) -> bytes:
        """Assemble and store `count` rows starting at `first`; return their summaries as JSON."""
        # A pack depends only on recipe and rows (REPLAY-11), so an unchanged window is stored by reference.
        pack_key = self.pack_key(first, count)
        cached = self._service.packs.get(pack_key) if pack_key else None
        if pack_key and cached is None and (stored := self._store.find_pack(pack_key)):
            cached = self._service.packs.put(pack_key, _to_cached_pack(*stored, first))
        if cached is not None:
            try:
                self._write_window(Window(first, utc_now_z(), self._digest, cached.counts, cached.pack_id))
                return self._summaries(cached)
            except PackDeleted:
                self._service.packs.discard(pack_key)
        return self.store_rows(first, self.assemble(self._load(first, count)), pack_key)

    def pack_key(self, first: int, count: int) -> str:
        """Return the cache key of a window's pack, empty if the pack must not be reused."""
        # A resolver may return a different value next time.
        if self.recipe.dynamic:
            return ""
        return f"{_FORMAT}/{self._service.redaction_fingerprint}/{self._digest}/{self.replay.dataset}/{first}/{count}"

    async def reuse_pack(self, first: int, cached: CachedPack) -> bytes:
        """Store a window that refers to a cached pack; raise PackDeleted if the pack was deleted."""
        window = Window(first, self.replay.created_at, self._digest, cached.counts, cached.pack_id)
        self._created_at = window.created_at
        try:
            await self._store.add_window_async(self.replay, window)
        except DatasetDeleted:
            raise not_found("dataset", self.replay.dataset) from None
        return self._summaries(cached)

    def _load(self, first: int, count: int) -> list[Any]:
        """Read rows of the stored dataset."""
        rows = [msgspec.json.decode(row) for row in self._store.rows(self.replay.dataset, first, count)]
        if len(rows) < count:
            # Another client deleted the dataset in the meantime.
            raise not_found("dataset", self.replay.dataset)
        return rows

    def load_and_assemble(self, first: int, count: int) -> tuple[list[Any], list[AssembledRow]]:
        """Return rows of the stored dataset together with their assembled contexts."""
        rows = self._load(first, count)
        return rows, list(self.assemble(rows))

    def assemble(self, rows: Sequence[Any]) -> Iterator[AssembledRow]:
        """Assemble rows lazily; each dynamic variable is resolved once per replay."""
        needed = sorted(self.recipe.needs(rows) - self._resolved.keys())
        self._resolved |= self._service.resolve_all(self.recipe, needed, self._deadline)
        hide = self._service.redactor
        return (redact(self.recipe.assemble(row, self._resolved), hide) for row in rows)

    def store_rows(self, first: int, assembled: Iterable[AssembledRow], pack_key: str = "") -> bytes:
        """Store assembled rows as one window; return their summaries as JSON."""
        pack = Pack.of(pack_key, assembled)
        pack_id = self._write_window(Window(first, utc_now_z(), self._digest, Counts.of(pack.outcomes), pack))
        cached = _to_cached_pack(pack_id, pack.outcomes, first)
        if pack_key:
            self._service.packs.put(pack_key, cached)
        return self._summaries(cached)

    def _write_window(self, window: Window) -> int:
        if self._is_first:
            # A replay is dated by its first record, however long that took.
            self.replay = self.replay._replace(created_at=window.created_at)
            if self.replay.rows_requested is not None and window.counts.rows < self.replay.rows_requested:
                self._mark = RunningMark(self._store.path, self.replay.id)
        try:
            pack_id = self._store.add_window(
                self.replay, window, self.recipe.nodes, self._is_first, self._is_stored_dataset
            )
        except DatasetDeleted:
            raise not_found("dataset", self.replay.dataset) from None
        self._is_first = False
        self._created_at = window.created_at
        return pack_id

    def _summaries(self, cached: CachedPack) -> bytes:
        pieces = cached.pieces.copy()
        pieces[1::4] = [self.replay.id.encode()] * cached.counts.rows
        pieces[3::4] = [self._created_at.encode()] * cached.counts.rows
        return b"".join(pieces)


def _to_cached_pack(pack_id: int, outcomes: list[Outcome], first: int) -> CachedPack:
    summaries = [
        RunSummary(f"<replay>-{row}", "<time>", row, outcome.status, outcome.digest, outcome.missing)
        for row, outcome in enumerate(outcomes, first)
    ]
    return CachedPack(pack_id, Counts.of(outcomes), re.split(rb"(<replay>|<time>)", msgspec.json.encode(summaries)))


def redact(assembled: AssembledRow, redactor: Redactor) -> AssembledRow:
    """Redact secrets that appear only after assembly, joined from a template and a value or from two values."""
    texts = (
        [assembled.text, *(segment.text for segment in assembled.segments)] if assembled.truncated else [assembled.text]
    )
    if all(map(redactor.is_clean, texts)):
        return assembled
    text = redactor.text(assembled.text)
    segments = [msgspec.structs.replace(segment, text=redactor.text(segment.text)) for segment in assembled.segments]
    return msgspec.structs.replace(assembled, text=text, segments=segments, digest=sha256_base64(text))


def new_replay_id() -> str:
    """Return an id that sorts by time and is unique across processes."""
    return f"r{time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"
