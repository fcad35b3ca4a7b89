"""One tool for the test files of prompts, pipelines, functions, context recipes and RAG systems."""

from __future__ import annotations

from evalloom import moved
from evalloom.core.lazy import lazy_names

__version__ = "0.2.0"

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from evalloom.api import check, evaluate, read
    from evalloom.core.errors import EvalloomError
    from evalloom.core.model import Case, Check, Checked, Context, Finding, Origin, Output
    from evalloom.data.dataset import Dataset
    from evalloom.data.dialect import Rules
    from evalloom.engine.results import Results
    from evalloom.opened import open as open

# Not `open`: `from evalloom import *` would replace the one of Python.
__all__ = [
    "Case",
    "Check",
    "Checked",
    "Context",
    "Dataset",
    "EvalloomError",
    "Finding",
    "Origin",
    "Output",
    "Results",
    "Rules",
    "__version__",
    "check",
    "evaluate",
    "read",
]
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.api": ("check", "evaluate", "read"),
        "evalloom.core.errors": ("EvalloomError",),
        "evalloom.core.model": ("Case", "Check", "Checked", "Context", "Finding", "Origin", "Output"),
        "evalloom.data.dataset": ("Dataset",),
        "evalloom.data.dialect": ("Rules",),
        "evalloom.engine.results": ("Results",),
        "evalloom.opened": ("open",),
    },
)
moved.install()
