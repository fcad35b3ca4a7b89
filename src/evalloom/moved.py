"""Keeps packages and names importable from their places in version 0.1."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HOMES = {
    "asking": "llms.delimiters",
    "http": "core.http",
    "record": "batchlog",
    "reports.prompt_eval_charts": "prompt_eval.reports.html",
    "resolvers": "replay.resolvers",
    "retrieval": "rag.retrieval",
    "retrieval.readers": "rag.retrieval.readers",
    "run": "engine.run",
    "sandbox": "core.sandbox",
    "validate": "data.validate",
}
NAMES = {
    "batchlog.Kept": "batchlog.baseline.BaselineRun",
    "batchlog.kept_runs": "batchlog.baseline.baseline_runs",
    "engine.run.Chosen": "engine.run.jobs.SelectedCase",
    "engine.run.Held": "engine.run.needs.DependencyQueue",
    "engine.run.encoded": "core.digest.canonical_json",
    "engine.run.Voices": "engine.run.runner.ProfileClients",
    "matchers.Grade": "matchers.base.CheckResult",
    "matchers.Seen": "matchers.base.MatchContext",
    "settings.PromptEvalSettings": "prompt_eval.settings.PromptEvalSettings",
    "settings.RagSettings": "rag.settings.RagSettings",
    "settings.ResolverSettings": "replay.settings.ResolverSettings",
}
"""Names that a package had in version 0.1, and their present names."""


class MovedFinder:
    """Finds a package by its old name. Python calls it last, so it costs nothing until an old name is imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, old = name.partition(".")
        if package != "evalloom" or old not in HOMES:
            return None
        from importlib.machinery import ModuleSpec

        # Some of them had modules inside, so all are packages.
        return ModuleSpec(name, _Alias(f"{package}.{HOMES[old]}"), is_package=True)  # type: ignore[arg-type]


class _Alias:
    """Loads a module that forwards to another one."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        import warnings
        from functools import partial
        from importlib import import_module

        warnings.warn(f"{module.__name__} is now {self._home}", DeprecationWarning, stacklevel=2)
        home = import_module(self._home)
        module.__dict__.update(__doc__=home.__doc__, __all__=home.__all__)
        module.__dict__.update(__getattr__=partial(getattr, home), __dir__=partial(dir, home))


def find_name(package: str, name: str) -> object:
    """Look up a name that a package had in version 0.1, for its `__getattr__`. Raises AttributeError."""
    top, _, inner = package.partition(".")
    now = NAMES.get(f"{inner}.{name}")
    if now is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    import warnings
    from importlib import import_module

    warnings.warn(f"{package}.{name} is now {top}.{now}", DeprecationWarning, stacklevel=3)
    home, _, new_name = now.rpartition(".")
    return getattr(import_module(f"{top}.{home}"), new_name)


def install() -> None:
    """Make the old names importable."""
    sys.meta_path.append(MovedFinder)
