"""HOP batch tests: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System
from evalloom.hop.dialect import DIALECT
from evalloom.hop.example import EXAMPLE

if TYPE_CHECKING:
    from evalloom.engine.init import Starter


def _starter() -> Starter:
    from evalloom.hop.starter import STARTER

    return STARTER


SYSTEM = System(
    name="hop",
    title="HOP batch tests",
    dialects=(DIALECT,),
    starter=_starter,
    example=EXAMPLE,
)
