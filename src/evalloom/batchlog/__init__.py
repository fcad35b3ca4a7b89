"""Runs and verdicts -> the batch log: a folder of plain files that is only ever appended to."""

from evalloom.batchlog.baselines import (
    BASELINES,
    Baseline,
    Kept,
    baselines,
    checked_name,
    find_baseline,
    has_baseline,
    kept_runs,
    read_baseline,
    remove_baseline,
    save_baseline,
)
from evalloom.batchlog.folders import FOLDER, batches, find, new_id, remove
from evalloom.batchlog.log import Log, Rescoring, is_in_use
from evalloom.batchlog.read import Damage, RunIndex, finished, in_order, manifest, pairs

__all__ = [
    "BASELINES",
    "FOLDER",
    "Baseline",
    "Damage",
    "Kept",
    "Log",
    "Rescoring",
    "RunIndex",
    "baselines",
    "batches",
    "checked_name",
    "find",
    "find_baseline",
    "finished",
    "has_baseline",
    "in_order",
    "is_in_use",
    "kept_runs",
    "manifest",
    "new_id",
    "pairs",
    "read_baseline",
    "remove",
    "remove_baseline",
    "save_baseline",
]
