"""Runs and verdicts -> the batch log: a folder of plain files that is only ever appended to."""

from evalloom.record.folders import FOLDER, batches, find, new_id, remove
from evalloom.record.log import Log, Rescoring, is_in_use
from evalloom.record.read import Damage, RunIndex, finished, in_order, manifest, pairs

__all__ = [
    "FOLDER",
    "Damage",
    "Log",
    "Rescoring",
    "RunIndex",
    "batches",
    "find",
    "finished",
    "in_order",
    "is_in_use",
    "manifest",
    "new_id",
    "pairs",
    "remove",
]
