"""What is kept of replays, as the store takes it in and gives it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from evalloom.files import zstd
from evalloom.replay.recipe.assemble import Assembled
from evalloom.replay.recipe.trace import Outcome

WINDOW = 200
"""How many rows a window holds at most."""
UNMET = ("failed", "error")
"""What the checks of an answer come to where it is not as expected, or did not come."""
_BLOCK_BYTES = 256_000
_encode = msgspec.json.Encoder().encode


class StoredProject(NamedTuple):
    """A project as it is kept: its state is JSON text."""

    id: str
    name: str
    state: bytes
    digest: str
    updated_at: str


class StoredDataset(NamedTuple):
    """What is kept of a dataset beside its rows."""

    id: str
    name: str
    row_count: int
    updated_at: str


class Replay(NamedTuple):
    """Who was replayed with what."""

    id: str
    dataset: str
    project: str
    created_at: str
    profile: str = ""


class ReplayCounts(NamedTuple):
    """A replay, and what came of it so far."""

    replay: Replay
    offset: int
    counts: Counts
    number: int = 0
    """Grows with every replay that is kept: a larger one is newer."""

    @property
    def end(self) -> int:
        """The row behind the last one."""
        return self.offset + self.counts.rows


class Counts(NamedTuple):
    """How many runs there are, how many succeeded, and how many answers were as expected and how many were not."""

    rows: int
    succeeded: int
    met: int
    unmet: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Counts:
        return cls(
            len(outcomes),
            sum(one.status == "succeeded" for one in outcomes),
            sum(one.check == "passed" for one in outcomes),
            sum(one.check in UNMET for one in outcomes),
        )


class Block(NamedTuple):
    """Some rows of a pack, compressed by themselves, so that a run is read without all the others."""

    first: int
    rows: int
    start: int
    size: int


class Pack(NamedTuple):
    """What the rows of a window came to. `key` says what it was made of; without one it is not found again."""

    key: str
    outcomes: list[Outcome]
    blocks: list[Block]
    body: bytes

    @classmethod
    def of(cls, key: str, made: Iterable[Assembled]) -> Pack:
        """The pack of assembled rows, which are taken one by one: together they may be large."""
        outcomes: list[Outcome] = []
        blocks: list[Block] = []
        packed: list[bytes] = []
        raw: list[bytes] = []

        def close_block() -> None:
            block = zstd.compress(b"[" + b",".join(raw) + b"]")
            start = blocks[-1].start + blocks[-1].size if blocks else 0
            blocks.append(Block(len(outcomes) - len(raw), len(raw), start, len(block)))
            packed.append(block)
            raw.clear()

        for one in made:
            raw.append(_encode(one))
            outcomes.append(outcome_of(one))
            if sum(map(len, raw)) > _BLOCK_BYTES:
                close_block()
        if raw:
            close_block()
        return cls(key, outcomes, blocks, b"".join(packed))


class Window(NamedTuple):
    """Some rows of a replay that follow one another; `pack` is one that is kept already, or a new one."""

    first_row: int
    created_at: str
    recipe: str
    counts: Counts
    pack: int | Pack


class Kept(NamedTuple):
    """A window as it is kept."""

    replay: str
    dataset: str
    project: str
    created_at: str
    first_row: int
    row_count: int
    succeeded: int
    pack: int
    recipe: str


class Chosen(NamedTuple):
    """Which runs of a dataset are asked for."""

    dataset: str
    row_index: int | None = None
    status: str = ""
    project: str = ""
    check: str = ""
    """`passed` or `failed`: those whose answer was as expected, or was not."""

    def means(self, outcome: Outcome) -> bool:
        is_checked = outcome.check == "passed" if self.check == "passed" else outcome.check in UNMET
        return self.status in ("", outcome.status) and (not self.check or is_checked)


class DatasetGone(Exception):
    """A dataset was removed while it was replayed, and its runs with it."""


class PackGone(Exception):
    """A pack was removed by somebody else: what it held has to be made again."""


def outcome_of(made: Assembled) -> Outcome:
    """What an assembled row came to, in short."""
    model = made.model
    asked = (model.status, model.answer_digest) if model else ("", "")
    return Outcome(made.status, made.digest, made.missing, made.truncated, *asked)
