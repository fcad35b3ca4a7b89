"""The shelf of formats: each turns its own vocabulary into cases, and says what is wrong with a record."""

from __future__ import annotations

from difflib import get_close_matches

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
from evalloom.errors import usage_error

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
    guess = get_close_matches(wanted, names, 1)
    hint = f" Did you mean {guess[0]!r}?" if guess else ""
    raise usage_error("unknown_dialect", f"expected a dialect ({', '.join(names)}), got {name!r}.{hint}")
