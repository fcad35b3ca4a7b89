"""The part of the demo that replays a context recipe: twice, so that the digests can be held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom import catalog, settings
from evalloom.replay.files import replay_files
from evalloom.replay.service import Desk
from evalloom.settings import FILE_NAME

FOLDER = "replay/context"
_SUCCEEDED, _FAILED = 27, 3


class Replayed(Struct, frozen=True):
    """What came of it: `failures` say where rows failed, on purpose."""

    replay_id: str
    data_dir: str
    succeeded: int
    failed: int
    is_stable: bool
    failures: list[str]

    @property
    def as_expected(self) -> bool:
        return (self.succeeded, self.failed, self.is_stable) == (_SUCCEEDED, _FAILED, True)


def replay(examples: Path, home: Path) -> Replayed:
    """Replays the example twice; the records go under `home`."""
    folder, data_dir = examples / FOLDER, home / ".evalloom"
    desk = Desk(data_dir, settings.load(folder / FILE_NAME, catalog.load().sections), folder)
    try:
        first, again = (replay_files(folder / "project.json", str(folder / "rows.jsonl"), desk) for _ in range(2))
        digests = [[run.output_digest for run in one.summaries()] for one in (first, again)]
        failures = [
            f"row {record.row_index}: {error.message} [{error.error_code}]"
            for record in again.records()
            for error in record.errors
        ]
    finally:
        desk.close()
    told = again.replay
    is_stable = digests[0] == digests[1]
    return Replayed(told.replay_id, data_dir.as_posix(), told.succeeded, told.failed, is_stable, failures)


def entry(replayed: Replayed) -> dict[str, Any]:
    """What the JSON report says of it."""
    return {
        "example": FOLDER,
        "replay": replayed.replay_id,
        "succeeded": replayed.succeeded,
        "failed": replayed.failed,
        "same_digests_twice": replayed.is_stable,
        "failures": replayed.failures,
        "as_expected": replayed.as_expected,
    }


def sentence(replayed: Replayed) -> str:
    """What a reader is told."""
    same = "the same digests both times" if replayed.is_stable else "other digests the second time"
    rows = replayed.succeeded + replayed.failed
    return f"{FOLDER}: {rows} rows twice, {replayed.succeeded} succeeded, {replayed.failed} failed, {same}"
