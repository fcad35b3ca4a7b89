"""The Python API for scripts, notebooks and tests: the verbs of the command line as functions, under the same names."""

from __future__ import annotations

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from evalloom.api.cases import check, read
    from evalloom.api.comparing import BatchComparison, baseline, baselines, compare
    from evalloom.api.figures import BatchStats, stats
    from evalloom.api.reporting import report
    from evalloom.api.running import evaluate, score

__all__ = [
    "BatchComparison",
    "BatchStats",
    "baseline",
    "baselines",
    "check",
    "compare",
    "evaluate",
    "read",
    "report",
    "score",
    "stats",
]
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.api.cases": ("check", "read"),
        "evalloom.api.comparing": ("BatchComparison", "baseline", "baselines", "compare"),
        "evalloom.api.figures": ("BatchStats", "stats"),
        "evalloom.api.reporting": ("report",),
        "evalloom.api.running": ("evaluate", "score"),
    },
)
