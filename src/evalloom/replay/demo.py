"""The replay part of the demo: a context recipe is replayed twice, to compare the digests."""

from __future__ import annotations

import shlex
from pathlib import Path

from evalloom import settings
from evalloom.engine.example import PartResult
from evalloom.engine.system import Catalog
from evalloom.replay.files import replay_files
from evalloom.replay.service import ReplayService
from evalloom.settings import FILE_NAME

FOLDER = "replay/context"
_SUCCEEDED, _FAILED = 27, 3
_FAILING_ROW = 17
"""A row that fails on purpose; its record is worth a look."""


def replay(catalog: Catalog, examples: Path, home: Path) -> PartResult:
    """Replay the example twice; the records go under `home`."""
    folder, data_dir = examples / FOLDER, home / ".evalloom"
    service = ReplayService(data_dir, settings.load(folder / FILE_NAME, catalog.sections), folder)
    try:
        first, second = (replay_files(folder / "project.json", str(folder / "rows.jsonl"), service) for _ in range(2))
        before, after = ([run.output_digest for run in replayed.summaries()] for replayed in (first, second))
        failures = [
            f"row {record.row_index}: {error.message} [{error.error_code}]"
            for record in second.records()
            for error in record.errors
        ]
    finally:
        service.close()
    replay_id, succeeded, failed = second.replay.replay_id, second.replay.succeeded, second.replay.failed
    is_stable = before == after
    as_expected = (succeeded, failed, is_stable) == (_SUCCEEDED, _FAILED, True)
    digests = "the same digests both times" if is_stable else "other digests the second time"
    entry = {
        "example": FOLDER,
        "replay": replay_id,
        "succeeded": succeeded,
        "failed": failed,
        "same_digests_twice": is_stable,
        "failures": failures,
        "as_expected": as_expected,
    }
    return PartResult(
        as_expected,
        f"{FOLDER}: {succeeded + failed} rows twice, {succeeded} succeeded, {failed} failed, {digests}",
        entry,
        tuple(failures),
        (shlex.join(("replay", "show", f"{replay_id}-{_FAILING_ROW}", "--data-dir", data_dir.as_posix())),),
    )
