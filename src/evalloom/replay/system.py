"""Context recipes and run records: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.replay.dialect import DIALECT
from evalloom.replay.settings import SECTION

SYSTEM = System(
    name="replay",
    title="Context recipes and run records",
    dialects=(DIALECT,),
    sections=(SECTION,),
)
