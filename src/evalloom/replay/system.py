"""Context recipes and run records: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System
from evalloom.replay.dialect import DIALECT
from evalloom.replay.example import EXAMPLE
from evalloom.replay.settings import SECTION

if TYPE_CHECKING:
    from evalloom.engine.init import Starter


def _starter() -> Starter:
    from evalloom.replay.starter import STARTER

    return STARTER


SYSTEM = System(
    name="replay",
    title="Context recipes and run records",
    dialects=(DIALECT,),
    sections=(SECTION,),
    starter=_starter,
    example=EXAMPLE,
)
