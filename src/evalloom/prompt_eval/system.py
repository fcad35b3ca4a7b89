"""Prompts scored 1 to 3 on test points: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.prompt_eval.dialect import DIALECT
from evalloom.prompt_eval.settings import SECTION

SYSTEM = System(
    name="prompt-eval",
    title="Prompts scored 1 to 3 on test points",
    dialects=(DIALECT,),
    sections=(SECTION,),
)
