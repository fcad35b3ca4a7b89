"""One tool for the test files of prompts, pipelines, functions, context recipes and RAG systems."""

from __future__ import annotations

from evalloom import moved
from evalloom.core.lazy import lazy_names

__version__ = "0.2.0"

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from evalloom.api import (
        BatchComparison,
        BatchStats,
        baseline,
        baselines,
        check,
        compare,
        evaluate,
        read,
        report,
        score,
        stats,
    )
    from evalloom.core.errors import EvalloomError
    from evalloom.core.model import Case, Check, Checked, Context, Finding, Origin, Output
    from evalloom.core.verbs import EvalloomWarning
    from evalloom.data.dataset import Dataset
    from evalloom.data.dialect import Rules
    from evalloom.engine.results import Results
    from evalloom.engine.show_results import FailedRun
    from evalloom.opened import open as open

# Not `open`: `from evalloom import *` would replace the one of Python.
__all__ = [
    "BatchComparison",
    "BatchStats",
    "Case",
    "Check",
    "Checked",
    "Context",
    "Dataset",
    "EvalloomError",
    "EvalloomWarning",
    "FailedRun",
    "Finding",
    "Origin",
    "Output",
    "Results",
    "Rules",
    "__version__",
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
        "evalloom.core.errors": ("EvalloomError",),
        "evalloom.core.model": ("Case", "Check", "Checked", "Context", "Finding", "Origin", "Output"),
        "evalloom.core.verbs": ("EvalloomWarning",),
        "evalloom.data.dataset": ("Dataset",),
        "evalloom.data.dialect": ("Rules",),
        "evalloom.engine.results": ("Results",),
        "evalloom.engine.show_results": ("FailedRun",),
        "evalloom.opened": ("open",),
    },
)


def __dir__() -> list[str]:
    return [*__all__, "open"]


moved.install()
