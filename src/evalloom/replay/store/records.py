"""The values that the replay store reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from evalloom.files import zstd
from evalloom.replay.recipe.assemble import AssembledRow
from evalloom.replay.recipe.trace import Outcome
from evalloom.replay.store.running import ReplayState

WINDOW = 200
"""Rows per window at most."""
UNMET = ("failed", "error")
"""The check statuses of an answer that does not meet its expectations, or is missing."""
_BLOCK_BYTES = 256_000
_encode = msgspec.json.Encoder().encode


class StoredProject(NamedTuple):
    """A stored project; its state is JSON."""

    id: str
    name: str
    state: bytes
    digest: str
    updated_at: str


class StoredDataset(NamedTuple):
    """A stored dataset without its rows."""

    id: str
    name: str
    row_count: int
    updated_at: str


class Replay(NamedTuple):
    """Identifies a replay: its dataset, project, time and profile, and the number of rows asked for."""

    id: str
    dataset: str
    project: str
    created_at: str
    profile: str = ""
    rows_requested: int | None = None
    """None if it was stored by an earlier version, which did not keep it."""


class ReplayCounts(NamedTuple):
    """A replay and the counts of its stored rows."""

    replay: Replay
    offset: int
    counts: Counts
    number: int = 0
    """Increases with every stored replay: a larger number is newer."""
    state: ReplayState = "complete"

    @property
    def end(self) -> int:
        """The index after the last row."""
        return self.offset + self.counts.rows


class Counts(NamedTuple):
    """The number of runs, of runs that succeeded, and of answers that met or missed their expectations."""

    rows: int
    succeeded: int
    met: int
    unmet: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Counts:
        return cls(
            len(outcomes),
            sum(outcome.status == "succeeded" for outcome in outcomes),
            sum(outcome.check == "passed" for outcome in outcomes),
            sum(outcome.check in UNMET for outcome in outcomes),
        )


class PackBlock(NamedTuple):
    """Rows of a pack that are compressed together, so that reading one run does not decompress the whole pack."""

    first: int
    rows: int
    start: int
    size: int


class Pack(NamedTuple):
    """The assembled rows of a window. `key` identifies recipe and rows; a pack without a key is not reused."""

    key: str
    outcomes: list[Outcome]
    blocks: list[PackBlock]
    body: bytes

    @classmethod
    def of(cls, key: str, rows: Iterable[AssembledRow]) -> Pack:
        """Pack assembled rows, consuming them one at a time because together they may be large."""
        outcomes: list[Outcome] = []
        blocks: list[PackBlock] = []
        packed: list[bytes] = []
        raw: list[bytes] = []

        def close_block() -> None:
            block = zstd.compress(b"[" + b",".join(raw) + b"]")
            start = blocks[-1].start + blocks[-1].size if blocks else 0
            blocks.append(PackBlock(len(outcomes) - len(raw), len(raw), start, len(block)))
            packed.append(block)
            raw.clear()

        for row in rows:
            raw.append(_encode(row))
            outcomes.append(outcome_of(row))
            if sum(map(len, raw)) > _BLOCK_BYTES:
                close_block()
        if raw:
            close_block()
        return cls(key, outcomes, blocks, b"".join(packed))


class Window(NamedTuple):
    """Consecutive rows of a replay; `pack` is the id of a stored pack, or a new pack."""

    first_row: int
    created_at: str
    recipe: str
    counts: Counts
    pack: int | Pack


class StoredWindow(NamedTuple):
    """A window as read from the store, with the replay it belongs to."""

    replay: str
    dataset: str
    project: str
    created_at: str
    first_row: int
    row_count: int
    succeeded: int
    pack: int
    recipe: str


class RunFilter(NamedTuple):
    """Selects runs of a dataset."""

    dataset: str
    row_index: int | None = None
    status: str = ""
    project: str = ""
    check: str = ""
    """`passed` or `failed`: runs whose answer met or missed its expectations."""

    def matches(self, outcome: Outcome) -> bool:
        is_checked = outcome.check == "passed" if self.check == "passed" else outcome.check in UNMET
        return self.status in ("", outcome.status) and (not self.check or is_checked)


class DatasetDeleted(Exception):
    """A dataset and its runs were deleted while it was replayed."""


class PackDeleted(Exception):
    """A pack was deleted in the meantime; its rows have to be assembled again."""


def outcome_of(row: AssembledRow) -> Outcome:
    """Summarize an assembled row."""
    model = row.model
    answer = (model.status, model.answer_digest) if model else ("", "")
    return Outcome(row.status, row.digest, row.missing, row.truncated, *answer)
