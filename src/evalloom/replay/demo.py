"""The replay part of the demo: replays a context recipe twice and compares the digests."""

from __future__ import annotations

import shlex
from pathlib import Path

from evalloom import settings
from evalloom.engine.example import DemoPartResult
from evalloom.engine.system import Catalog
from evalloom.replay.files import replay_files
from evalloom.replay.service import ReplayService
from evalloom.settings import FILE_NAME

FOLDER = "replay/context"


def replay(catalog: Catalog, examples: Path, home: Path) -> DemoPartResult:
    """Replay the example twice; the records go under `home`."""
    folder, data_dir = examples / FOLDER, home / ".evalloom"
    service = ReplayService(data_dir, settings.load(folder / FILE_NAME, catalog.sections), folder)
    try:
        first, second = (replay_files(folder / "project.json", str(folder / "rows.jsonl"), service) for _ in range(2))
        before, after = ([run.output_digest for run in replayed.summaries()] for replayed in (first, second))
        failed_records = [record for record in second.records() if record.errors]
    finally:
        service.close()
    replay_id, succeeded, failed = second.replay.replay_id, second.replay.succeeded, second.replay.failed
    is_stable = before == after
    digests = "the same digests both times" if is_stable else "different digests the second time"
    failures = [
        f"row {record.row_index}: {error.message} [{error.error_code}]"
        for record in failed_records
        for error in record.errors
    ]
    # The last failure is that of a resolver, whose record is more instructive than that of a malformed row.
    shown_run = failed_records[-1].run_id if failed_records else f"{replay_id}-0"
    entry = {
        "example": FOLDER,
        "replay": replay_id,
        "succeeded": succeeded,
        "failed": failed,
        "same_digests_twice": is_stable,
        "failures": failures,
        "as_expected": is_stable,
    }
    return DemoPartResult(
        is_stable,
        f"{FOLDER}: {succeeded + failed} rows twice, {succeeded} succeeded, {failed} failed, {digests}",
        entry,
        tuple(failures),
        (shlex.join(("replay", "show", shown_run, "--data-dir", data_dir.as_posix())),),
    )
