"""HOP batch tests: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.hop.dialect import DIALECT

SYSTEM = System(
    name="hop",
    title="HOP batch tests",
    dialects=(DIALECT,),
)
