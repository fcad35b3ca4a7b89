"""The reporters of RAG batches; only the `rag` commands load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evalloom.rag.reports import html as rag_html
from evalloom.rag.reports import json as rag_json
from evalloom.rag.reports import markdown as rag_markdown

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import RagResults


class RagReporter(Protocol):
    """A module that renders a RAG batch, with one result per profile.

    `root` is the searched folder, `exit_code` the exit code of the command.
    """

    name: str
    suffix: str

    def render(
        self, results: Sequence[RagResults], root: Path, *, exit_code: int | None = None, language: str = "en"
    ) -> str: ...


RAG_REPORTERS: tuple[RagReporter, ...] = (rag_html, rag_markdown, rag_json)
