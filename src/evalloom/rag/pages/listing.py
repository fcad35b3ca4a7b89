"""The RAG batches of a project, each with its rate by bucket and the gap between oral and official wordings."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from msgspec import Struct

from evalloom.core.model import Batch
from evalloom.pages.library import BatchSummary
from evalloom.pages.page import Page, PageRequest, View
from evalloom.rag.analysis.measures import Measure, Purpose
from evalloom.rag.analysis.pairs import Gap
from evalloom.rag.batches import KIND
from evalloom.rag.dialect import BUCKETS
from evalloom.rag.pages.results import results_of
from evalloom.rag.reports import content

_PAGE_SIZE = 20
_MOST_RUNS = 50_000
"""A batch with more is not analysed for a list; its own page does it."""


class ProfileRates(Struct, frozen=True):
    """The deciding measure of one profile of a batch."""

    profile: str
    deciding: str
    overall: Measure
    buckets: dict[str, Measure]
    gap: Gap | None


class RagBatch(Struct, frozen=True):
    """A RAG batch in the list."""

    batch: BatchSummary
    purpose: Purpose
    k: int
    retriever: str
    profiles: list[ProfileRates]
    """Empty if the batch is too large for a list."""


class RagBatches(Struct, frozen=True):
    """The list of RAG batches."""

    batches: list[RagBatch]
    buckets: list[str]
    total: int
    page: int
    pages: int
    content: ClassVar[ModuleType] = content


def is_rag_batch(batch: Batch) -> bool:
    """Whether `evalloom rag` made a batch; `evalloom run` makes others of the same cases."""
    return batch.config.get("kind") == KIND


def _show(request: PageRequest) -> View:
    library = request.site.library
    found = [
        (summary, manifest.config)
        for summary in library.summaries()
        if summary.system == "rag" and is_rag_batch(manifest := library.manifest(summary.id))
    ]
    page, pages = request.number("page", 1), max(1, -(-len(found) // _PAGE_SIZE))
    batches = []
    for summary, config in found[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]:
        purpose: Purpose = "answer" if config.get("purpose") == "answer" else "retrieve"
        is_small = summary.summary.get("total", summary.planned) <= _MOST_RUNS
        rates = _rates(request, summary.id) if is_small else []
        retriever = " ".join(str(config[name]) for name in ("retriever", "mode") if config.get(name))
        batches.append(RagBatch(summary, purpose, int(config.get("k", 5)), retriever, rates))
    used = {name for batch in batches for rates in batch.profiles for name in rates.buckets}
    buckets = [*(name for name in BUCKETS if name in used), *sorted(used - set(BUCKETS))]
    return View("rag.html", RagBatches(batches, buckets, len(found), page, pages))


def _rates(request: PageRequest, id: str) -> list[ProfileRates]:
    return [
        ProfileRates(
            results.profile,
            results.deciding,
            results.overall.measure(results.deciding),
            {group.name: group.measure(results.deciding) for group in results.buckets},
            next(iter(results.pairs.gaps), None),
        )
        for results in results_of(request.site.library.path(id))
    ]


PAGES = (Page("/rag", _show),)
