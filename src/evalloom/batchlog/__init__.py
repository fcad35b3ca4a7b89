"""The batch log: runs and verdicts of a batch in a folder of append-only files."""

from __future__ import annotations

from evalloom import moved
from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalloom.batchlog.baseline import (
        BASELINES,
        Baseline,
        BaselineRun,
        baseline_runs,
        baselines,
        checked_name,
        find_baseline,
        has_baseline,
        read_baseline,
        remove_baseline,
        save_baseline,
    )
    from evalloom.batchlog.folders import FOLDER, batches, find, is_in_use, new_id, remove
    from evalloom.batchlog.log import Log, Rescoring
    from evalloom.batchlog.read import (
        Damage,
        RunIndex,
        find_run,
        finished,
        in_order,
        line_number,
        manifest,
        pairs,
        runs,
        scored_runs,
        warn_of_damage,
    )

__all__ = [
    "BASELINES",
    "FOLDER",
    "Baseline",
    "BaselineRun",
    "Damage",
    "Log",
    "Rescoring",
    "RunIndex",
    "baseline_runs",
    "baselines",
    "batches",
    "checked_name",
    "find",
    "find_baseline",
    "find_run",
    "finished",
    "has_baseline",
    "in_order",
    "is_in_use",
    "line_number",
    "manifest",
    "new_id",
    "pairs",
    "read_baseline",
    "remove",
    "remove_baseline",
    "runs",
    "save_baseline",
    "scored_runs",
    "warn_of_damage",
]
_BASELINES = (
    *("BASELINES", "Baseline", "BaselineRun", "baseline_runs", "baselines", "checked_name", "find_baseline"),
    *("has_baseline", "read_baseline", "remove_baseline", "save_baseline"),
)
# Listing batches needs no writer, and few commands need baselines.
_load = lazy_names(
    __name__,
    {
        "evalloom.batchlog.baseline": _BASELINES,
        "evalloom.batchlog.folders": ("FOLDER", "batches", "find", "is_in_use", "new_id", "remove"),
        "evalloom.batchlog.log": ("Log", "Rescoring"),
        "evalloom.batchlog.read": (
            *("Damage", "RunIndex", "find_run", "finished", "in_order", "line_number", "manifest", "pairs"),
            *("runs", "scored_runs", "warn_of_damage"),
        ),
    },
)


def __getattr__(name: str) -> object:
    return _load(name) if name in __all__ else moved.find_name(__name__, name)
