"""Files of other tools: everything that reading them adds to evalloom, in one value."""

from __future__ import annotations

from evalloom.engine.system import System
from evalloom.interop import deepeval, inspect_samples, openai_evals, pydantic_evals, ragas
from evalloom.interop.example import EXAMPLE
from evalloom.interop.promptfoo import dialect as promptfoo

SYSTEM = System(
    name="interop",
    title="Files of other tools",
    dialects=(
        promptfoo.DIALECT,
        openai_evals.DIALECT,
        inspect_samples.DIALECT,
        deepeval.DIALECT,
        ragas.DIALECT,
        pydantic_evals.DIALECT,
    ),
    example=EXAMPLE,
)
