"""The system that reads files of other tools, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import System

if TYPE_CHECKING:
    from evalloom.engine.example import Example
    from evalloom.engine.parts import Parts


def _example() -> Example:
    from evalloom.interop.example import EXAMPLE

    return EXAMPLE


def _parts() -> Parts:
    from evalloom.engine.parts import Parts
    from evalloom.interop import deepeval, inspect_samples, openai_evals, pydantic_evals, ragas
    from evalloom.interop.promptfoo import dialect as promptfoo

    return Parts(
        dialects=(
            promptfoo.DIALECT,
            openai_evals.DIALECT,
            inspect_samples.DIALECT,
            deepeval.DIALECT,
            ragas.DIALECT,
            pydantic_evals.DIALECT,
        ),
        example=_example,
    )


SYSTEM = System(name="interop", title="Files of other tools", parts=_parts)
