"""A replay that is going on: rows are assembled window by window, and kept before anybody is told of them."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from evalloom.replay.recipe.assemble import Assembled, Recipe, digest_of
from evalloom.replay.recipe.trace import Outcome, RunSummary
from evalloom.replay.resolvers import Resolution
from evalloom.replay.schemas import not_found
from evalloom.replay.store.records import WINDOW, Counts, DatasetGone, Pack, PackGone, Replay, Window
from evalloom.settings.keys import Redactor

if TYPE_CHECKING:
    from evalloom.replay.service import ReplayService

_FORMAT = "1"
"""Changes when the same recipe and row would come to something else; what was made before is then not used again."""
ASKED_WINDOW = 32
"""How many rows are kept together where a model is asked: what it said is paid for, and lost until it is kept."""

Value = TypeVar("Value")


class Known(NamedTuple):
    """A pack that is kept already, and the summaries of its runs but for what differs between replays."""

    pack: int
    counts: Counts
    pieces: list[bytes]
    """Of the summaries as JSON: every fourth one waits for the replay's id, and every fourth for the time."""


class Remembered(Generic[Value]):
    """The last few values by key, so that what is asked for again need not be made again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, Value] = OrderedDict()

    def get(self, key: str) -> Value | None:
        return self._values.get(key)

    def put(self, key: str, value: Value) -> Value:
        self._values[key] = value
        if len(self._values) > self._most:
            # Several threads may do so at once; one that finds nothing left has nothing to do.
            self._values.popitem(last=False)
        return value

    def forget(self, key: str) -> None:
        self._values.pop(key, None)


class Going:
    """A replay that is going on, window by window."""

    def __init__(
        self, service: ReplayService, replay: Replay, digest: str, recipe: Recipe, rows: range | None = None
    ) -> None:
        """`rows` are those of a dataset that is kept; without them, rows come from elsewhere."""
        self.replay = replay
        self.recipe = recipe
        self._of_service = rows is not None
        size = ASKED_WINDOW if replay.profile else WINDOW
        self.windows = [(first, min(size, rows.stop - first)) for first in rows[::size]] if rows is not None else []
        self._service = service
        self._store = service.store
        self._digest = digest
        self._resolved: dict[str, Resolution] = {}
        self._until = service.deadline()
        self._is_first = True

    def window(self, first: int, count: int) -> bytes:
        """Replays rows and keeps their runs; gives the summaries. What was made before is not made again."""
        key = self.key(first, count)
        if key and (known := self._known(key, first)):
            try:
                self._keep_window(Window(first, now(), self._digest, known.counts, known.pack))
                return self._summaries(known)
            except PackGone:
                self._service.packs.forget(key)
        return self.keep(first, self.assembled(first, count)[1], key)

    def key(self, first: int, count: int) -> str:
        """What the pack of a window is found by; empty where it must be made anew."""
        # What a resolver finds may be another thing next time.
        if self.recipe.dynamic:
            return ""
        return f"{_FORMAT}/{self._service.hiding}/{self._digest}/{self.replay.dataset}/{first}/{count}"

    async def keep_again(self, first: int, known: Known) -> bytes:
        """Keeps a window whose pack is known; gives the summaries. Raises PackGone where somebody removed it."""
        window = Window(first, self.replay.created_at, self._digest, known.counts, known.pack)
        self._created_at = window.created_at
        try:
            await self._store.add_window_soon(self.replay, window)
        except DatasetGone:
            raise not_found("dataset", self.replay.dataset) from None
        return self._summaries(known)

    def _known(self, key: str, first: int) -> Known | None:
        known = self._service.packs.get(key)
        if known is None and (found := self._store.find_pack(key)):
            known = self._service.packs.put(key, _known(*found, first))
        return known

    def assembled(self, first: int, count: int) -> tuple[list[Any], Iterator[Assembled]]:
        """Rows, and what they come to."""
        rows = [msgspec.json.decode(row) for row in self._store.rows(self.replay.dataset, first, count)]
        if len(rows) < count:
            # Somebody removed it meanwhile.
            raise not_found("dataset", self.replay.dataset)
        return rows, self.assemble(rows)

    def assembled_now(self, first: int, count: int) -> tuple[list[Any], list[Assembled]]:
        """The same, and all of it done when this returns."""
        rows, made = self.assembled(first, count)
        return rows, list(made)

    def assemble(self, rows: Sequence[Any]) -> Iterator[Assembled]:
        """What rows come to; a dynamic variable is resolved once for the whole replay."""
        needed = sorted(self.recipe.needs(rows) - self._resolved.keys())
        self._resolved |= self._service.resolve_all(self.recipe, needed, self._until)
        hide = self._service.redactor
        return (hidden(self.recipe.assemble(row, self._resolved), hide) for row in rows)

    def keep(self, first: int, made: Iterable[Assembled], key: str = "") -> bytes:
        """Keeps the runs of assembled rows; gives their summaries."""
        pack = Pack.of(key, made)
        id = self._keep_window(Window(first, now(), self._digest, Counts.of(pack.outcomes), pack))
        known = _known(id, pack.outcomes, first)
        if key:
            self._service.packs.put(key, known)
        return self._summaries(known)

    def _keep_window(self, window: Window) -> int:
        if self._is_first:
            # It is as new as its first record, however long that took.
            self.replay = self.replay._replace(created_at=window.created_at)
        try:
            id = self._store.add_window(self.replay, window, self.recipe.parts, self._is_first, self._of_service)
        except DatasetGone:
            raise not_found("dataset", self.replay.dataset) from None
        self._is_first = False
        self._created_at = window.created_at
        return id

    def _summaries(self, known: Known) -> bytes:
        pieces = known.pieces.copy()
        pieces[1::4] = [self.replay.id.encode()] * known.counts.rows
        pieces[3::4] = [self._created_at.encode()] * known.counts.rows
        return b"".join(pieces)


def _known(pack: int, outcomes: list[Outcome], first: int) -> Known:
    summaries = [
        RunSummary(f"<replay>-{row}", "<time>", row, outcome.status, outcome.digest, outcome.missing)
        for row, outcome in enumerate(outcomes, first)
    ]
    return Known(pack, Counts.of(outcomes), re.split(rb"(<replay>|<time>)", msgspec.json.encode(summaries)))


def hidden(made: Assembled, redactor: Redactor) -> Assembled:
    """What was assembled without secrets that came about only now, of a template and a value, or of two values."""
    texts = [made.text, *(segment.text for segment in made.segments)] if made.truncated else [made.text]
    if all(map(redactor.is_clean, texts)):
        return made
    text = redactor.text(made.text)
    segments = [msgspec.structs.replace(one, text=redactor.text(one.text)) for one in made.segments]
    return msgspec.structs.replace(made, text=text, segments=segments, digest=digest_of(text))


def now() -> str:
    """The time as records tell it: ISO 8601, UTC, to the millisecond."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def new_replay_id() -> str:
    """An id that sorts by time and that no other process takes."""
    return f"r{time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"
