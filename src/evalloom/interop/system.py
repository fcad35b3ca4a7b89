"""The system that reads files of other tools, in one value."""

from __future__ import annotations

from evalloom.engine.system import Parts, System


def _parts() -> Parts:
    from evalloom.interop import deepeval, inspect_samples, openai_evals, pydantic_evals, ragas
    from evalloom.interop.example import EXAMPLE
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
        example=EXAMPLE,
    )


SYSTEM = System(name="interop", title="Files of other tools", parts=_parts)
