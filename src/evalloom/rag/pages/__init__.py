"""The pages of RAG batches: the rates of their buckets, oral against official wordings, and why a case missed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalloom.pages.page import Section
from evalloom.rag.pages import batch, listing, run

_HERE = Path(__file__).parent


def _phrases() -> Mapping[str, str]:
    from evalloom.rag.pages.chinese import PHRASES
    from evalloom.rag.reports.chinese import PHRASES as REPORT_PHRASES

    return {**REPORT_PHRASES, **PHRASES}


SECTION = Section(
    "rag",
    "RAG",
    (*listing.PAGES, *batch.PAGES, *run.PAGES),
    _HERE / "templates",
    _HERE / "static",
    _phrases,
    has_batch=listing.is_rag_batch,
    batch_page="/rag/b/{batch}",
    run_page="/rag/b/{batch}/r/{run}",
)
