"""One tool for the test files of prompts, pipelines, functions, context recipes and RAG systems."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from evalloom.dialects.dataset import Dataset
    from evalloom.dialects.dialect import Rules
    from evalloom.errors import EvalloomError
    from evalloom.model import Case, Check, Checked, Context, Finding, Origin, Output
    from evalloom.workbench.api import evaluate
    from evalloom.workbench.lint import check, read
    from evalloom.workbench.results import Results

_HOMES = {
    "Case": "evalloom.model",
    "Check": "evalloom.model",
    "Checked": "evalloom.model",
    "Context": "evalloom.model",
    "Dataset": "evalloom.dialects.dataset",
    "EvalloomError": "evalloom.errors",
    "Finding": "evalloom.model",
    "Origin": "evalloom.model",
    "Output": "evalloom.model",
    "Results": "evalloom.workbench.results",
    "Rules": "evalloom.dialects.dialect",
    "check": "evalloom.workbench.lint",
    "evaluate": "evalloom.workbench.api",
    "read": "evalloom.workbench.lint",
}

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


def __getattr__(name: str) -> object:
    # `evalloom --version` imports this package and must not pay for the rest of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'evalloom' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
