"""`evalloom baseline save`: saves the results of a batch, for later batches to be compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from evalloom.analysis.tally import Tally
from evalloom.batchlog import (
    BASELINES,
    FOLDER,
    Baseline,
    checked_name,
    find,
    has_baseline,
    is_in_use,
    manifest,
    save_baseline,
)
from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.engine.compare_runs import runs_of
from evalloom.engine.results import stored_runs


def save(name: str, batch: str, force: bool, warn: Callable[[str], None], home: Path = Path()) -> Path:
    """Saves the results of a batch under a name; `force` replaces a baseline, and takes an unfinished batch."""
    if has_baseline(checked_name(name), home / BASELINES) and not force:
        raise usage_error("baseline_exists", f"there is a baseline {name!r} already. Replace it with --force")
    path = find(batch, home / FOLDER)
    if is_in_use(path):
        message = f"{path.as_posix()}: another process is writing this batch. Wait for it, or stop it"
        raise EvalloomError("batch_in_use", message)
    facts = manifest(path)
    if not facts.finished_at and not force:
        hint = "Go on with 'evalloom run … --resume', or keep what is there with --force"
        raise usage_error("unfinished_batch", f"{path.as_posix()}: the batch is unfinished. {hint}")
    tally = Tally(facts.options.get("pass_if"))
    for run, scored in stored_runs(path, warn):
        tally.add(run, scored)
    summary = tally.summary(facts.id, path.as_posix())
    if summary.pass_rate is None:
        warn(f"{path.name}: no run passed, failed or met an error, so nothing can be compared with it")
    # Of the options only what bears on a comparison: the file is to differ only where results do.
    options = {name: value for name, value in facts.options.items() if name in ("repeat", "pass_if")}
    facts = msgspec.structs.replace(facts, options=options, summary=msgspec.to_builtins(summary))
    head = Baseline(name=name, saved_at=utc_now(), runs=summary.total, batch=facts)
    return save_baseline(head, runs_of(path), home / BASELINES)
