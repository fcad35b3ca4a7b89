"""The shelf of formats: each turns its own vocabulary into cases, and says what is wrong with a record."""

from __future__ import annotations

from evalloom.dialects import (
    deepeval,
    hop,
    inspect_samples,
    openai_evals,
    pipeline,
    prompt_eval,
    promptfoo,
    pydantic_evals,
    rag,
    ragas,
    replay,
)
from evalloom.dialects.dialect import Dialect
from evalloom.errors import did_you_mean, usage_error

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
