"""Pipelines and testsets: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System
from evalloom.pipeline.dialect import DIALECT
from evalloom.pipeline.example import EXAMPLE

if TYPE_CHECKING:
    from evalloom.engine.init import Starter


def _starter() -> Starter:
    from evalloom.pipeline.starter import STARTER

    return STARTER


SYSTEM = System(
    name="pipeline",
    title="Pipelines and testsets",
    dialects=(DIALECT,),
    starter=_starter,
    example=EXAMPLE,
)
