"""Pipelines and testsets: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.pipeline.dialect import DIALECT

SYSTEM = System(
    name="pipeline",
    title="Pipelines and testsets",
    dialects=(DIALECT,),
)
