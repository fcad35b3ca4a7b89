"""Reads a batch and reports what its log lost: a last line that is cut off, and runs that were there or are to come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evalloom.batchlog.folders import is_in_use
from evalloom.batchlog.read import RUNS, VERDICTS, Damage, manifest, scored_runs, torn_line
from evalloom.core.model import Batch, Run, Scored
from evalloom.core.text import pluralize


def checked_runs(path: Path, damage: list[Damage] | None = None) -> Iterator[tuple[Run, Scored]]:
    """Yield every run with its score, by profile, case and repeat; `damage` is complete when all are yielded.

    A batch that is being written is read up to its last whole line, and nothing is missing in it.
    """
    # Before the manifest is read: a batch that ends meanwhile counts as running.
    is_running = is_in_use(path)
    batch = manifest(path)
    count = 0
    for pair in scored_runs(path, [profile.name for profile in batch.profiles], damage):
        count += 1
        yield pair
    if damage is not None and not is_running:
        damage += losses(path, batch, count)


def losses(path: Path, batch: Batch, runs: int) -> Iterator[Damage]:
    """Yield what is missing in the log of a batch that nobody writes and in which `runs` runs can be read."""
    expected = _expected_runs(batch)
    counted = f"{runs:,} of {pluralize(expected, 'run')}"
    torn = torn_line(path / RUNS)
    if torn:
        left = f" and {counted} can be read" if runs < expected else ""
        yield Damage(RUNS, torn, f"the last line is cut off{left}. 'evalloom run … --resume' runs what is missing")
    elif runs < expected and batch.finished_at:
        message = f"{counted} can be read; the others were deleted. 'evalloom run … --resume' runs them again"
        yield Damage(RUNS, 0, message, has_lost_runs=True)
    elif runs < expected:
        message = f"{counted} can be read: the batch stopped early. 'evalloom run … --resume' continues it"
        yield Damage(RUNS, 0, message, has_lost_runs=True)
    if torn := torn_line(path / VERDICTS):
        yield Damage(VERDICTS, torn, f"the last line is cut off. 'evalloom score {batch.id}' scores its run again")


def _expected_runs(batch: Batch) -> int:
    """Return how many runs the log should have; 0 if that is not known."""
    # A finished batch may have fewer than planned: --until-sure leaves cases out, an outage drops a profile.
    total = batch.summary.get("total") if batch.finished_at else batch.planned
    return total if isinstance(total, int) else 0
