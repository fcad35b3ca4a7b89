"""The shelf of formats: each turns its own vocabulary into cases, and says what is wrong with a record."""

from __future__ import annotations

from evalloom.core.errors import did_you_mean, usage_error
from evalloom.data.dialect import Dialect
from evalloom.hop import dialect as hop
from evalloom.interop import deepeval, inspect_samples, openai_evals, pydantic_evals, ragas
from evalloom.interop.promptfoo import dialect as promptfoo
from evalloom.pipeline import dialect as pipeline
from evalloom.prompt_eval import dialect as prompt_eval
from evalloom.rag import dialect as rag
from evalloom.replay import dialect as replay

DIALECTS: tuple[Dialect, ...] = (
    hop.DIALECT,
    pipeline.DIALECT,
    prompt_eval.DIALECT,
    replay.DIALECT,
    rag.DIALECT,
    promptfoo.DIALECT,
    openai_evals.DIALECT,
    inspect_samples.DIALECT,
    deepeval.DIALECT,
    ragas.DIALECT,
    pydantic_evals.DIALECT,
)

WRITERS: tuple[Dialect, ...] = tuple(dialect for dialect in DIALECTS if dialect.write is not None)


def by_name(name: str) -> Dialect:
    """The dialect a user names."""
    wanted = name.strip().lower().replace("_", "-")
    for dialect in DIALECTS:
        if dialect.name == wanted:
            return dialect
    names = [dialect.name for dialect in DIALECTS]
    hint = did_you_mean(wanted, names) or "."
    raise usage_error("unknown_dialect", f"expected a dialect ({', '.join(names)}), got {name!r}{hint}")
