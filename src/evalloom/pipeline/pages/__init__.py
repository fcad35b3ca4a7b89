"""The pages of pipelines: their graphs, the steps of a batch with times and failures, and one case step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evalloom.pages.page import Section
from evalloom.pipeline.pages import batch, listing, run
from evalloom.ui.language import phrase

_HERE = Path(__file__).parent


def _phrases() -> Mapping[str, str]:
    from evalloom.pipeline.pages.chinese import PHRASES

    return PHRASES


SECTION = Section(
    "pipeline",
    phrase("Pipelines"),
    (*listing.PAGES, *batch.PAGES, *run.PAGES),
    _HERE / "templates",
    _HERE / "static",
    _phrases,
    has_batch=listing.is_pipeline_batch,
    batch_page="/pipeline/b/{batch}",
    run_page="/pipeline/b/{batch}/r/{run}",
)
