"""Prompts scored 1 to 3 on test points: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System
from evalloom.prompt_eval.dialect import DIALECT
from evalloom.prompt_eval.example import EXAMPLE
from evalloom.prompt_eval.settings import SECTION

if TYPE_CHECKING:
    from evalloom.engine.init import Starter


def _starter() -> Starter:
    from evalloom.prompt_eval.starter import STARTER

    return STARTER


SYSTEM = System(
    name="prompt-eval",
    title="Prompts scored 1 to 3 on test points",
    dialects=(DIALECT,),
    sections=(SECTION,),
    starter=_starter,
    example=EXAMPLE,
)
