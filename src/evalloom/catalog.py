"""Lists the systems. Everything above the engine gets the catalog here and passes it down."""

from __future__ import annotations

from functools import cache

from evalloom.engine.packages import load_packages
from evalloom.engine.system import Catalog, System
from evalloom.hop.system import SYSTEM as HOP
from evalloom.interop.system import SYSTEM as INTEROP
from evalloom.pipeline.system import SYSTEM as PIPELINE
from evalloom.prompt_eval.system import SYSTEM as PROMPT_EVAL
from evalloom.rag.system import SYSTEM as RAG
from evalloom.replay.system import SYSTEM as REPLAY

SYSTEMS: tuple[System, ...] = (HOP, PIPELINE, PROMPT_EVAL, REPLAY, RAG, INTEROP)
DEFAULT_DIALECT = PIPELINE.name
"""The default format of `evalloom init`, and the format that the demo converts files of other tools to."""


@cache
def load() -> Catalog:
    """Return the systems above and those of other installed packages."""
    return load_packages(SYSTEMS)


def load_for_python() -> Catalog:
    """Return the catalog for Python code, with a Python warning for each system that failed to load."""
    from evalloom.core.verbs import warn_caller

    catalog = load()
    for failure in catalog.failures:
        warn_caller()(f"the system {failure.name!r} is left out: {failure.reason} [system_failed]")
    return catalog
