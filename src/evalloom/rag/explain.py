"""`evalloom rag explain`: whether the source of a case is indexed, at which place, and which words match."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from evalloom.batchlog import find, manifest
from evalloom.core.errors import CallError, usage_error
from evalloom.core.model import Batch, Case, Context, Profile, Request, Response, Run, Scored, Status
from evalloom.core.ranking import is_hit
from evalloom.core.text import did_you_mean, quote
from evalloom.data.formats import Formats
from evalloom.engine.loop import run_loop
from evalloom.engine.results import stored_runs
from evalloom.engine.resume import case_of
from evalloom.llms.clients import LlmOptions
from evalloom.rag.batches import KIND
from evalloom.rag.dialect import DIALECT
from evalloom.rag.retrieval import Explained
from evalloom.rag.retriever import BUILTIN, Listener, Retriever, SearchOptions, open_retriever
from evalloom.settings import Settings

_DEEP = 1000
"""Passages to request when looking for the place of a source beyond the first k."""
_MOST_BELOW = 50
"""Most documents of an expected folder to explain."""


class Expectation(Struct, frozen=True):
    """An expected source: the documents it matches, why it is not indexed, and its place."""

    source: str
    documents: list[str]
    unread: str
    place: int
    """Place of its first passage among all passages, from 1; 0 when there is none."""
    explained: Explained | None = None


class RetrievedSource(Struct, frozen=True):
    """A source among the first k passages: its places, and why it matches when the index knows."""

    source: str
    places: list[int]
    explained: Explained | None = None


class Explanation(Struct, frozen=True):
    """Why one case of a RAG batch was found or missed, with the documents as they are now."""

    batch: str
    case_id: str
    query: str
    status: Status
    reason: str
    k: int
    retriever: str
    expected: list[Expectation]
    passages: int
    """Number of all passages that the retriever returns."""
    retrieved: list[RetrievedSource] = field(name="found")
    has_changed: bool
    """Whether the documents changed since the batch."""
    error: str = field(default="", name="fault")
    """The error of the retriever, when it was called again."""


def explain(case_id: str, batch: str, listener: Listener, settings: Settings) -> Explanation:
    """Explain a case of a batch by querying the same retriever again."""
    path = find(batch)
    batch_manifest = manifest(path)
    if batch_manifest.config.get("kind") != KIND:
        raise usage_error("no_rag_batch", f"{path.as_posix()} is not a RAG batch. Name one: --batch ID")
    run, status, reason = _find_run(case_id, path)
    case = case_of(run, Formats((DIALECT,)))
    search = msgspec.convert(batch_manifest.options["searching"], SearchOptions)
    retriever = open_retriever(search, settings, listener)
    query = str(case.inputs.get("query") or "")
    retriever.fill([query])
    sources, error = run_loop(_sources(retriever, query, case, search.k))
    return _explanation(batch_manifest, run, (status, reason), retriever, sources, error)


def explain_from_index(batch: Batch, run: Run, scored: Scored, home: Path) -> Explanation | None:
    """Explain a run from the stored index as it is, without reading documents or calling anything.

    None if the batch searched in another way than by words, or a folder outside `home`.
    """
    search = msgspec.convert(batch.options["searching"], SearchOptions)
    root = home / search.root
    if search.retriever != BUILTIN or search.mode != "bm25" or not root.resolve().is_relative_to(home.resolve()):
        return None
    search = structs.replace(search, root=str(root), is_frozen=True)
    retriever = open_retriever(search, Settings(), Listener(lambda message: None), LlmOptions(home=home))
    index = retriever.index
    assert index is not None
    try:
        sources = [passage.source for passage in index.search(str(run.raw.get("query") or ""), _DEEP)]
        return _explanation(batch, run, (scored.status, run.error), retriever, sources, "")
    finally:
        index.close()


def _explanation(
    batch: Batch, run: Run, outcome: tuple[Status, str], retriever: Retriever, sources: list[str], error: str
) -> Explanation:
    k: int = batch.options["searching"]["k"]
    query = str(run.raw.get("query") or "")
    first = {source: [place for place, other in enumerate(sources[:k], 1) if other == source] for source in sources[:k]}
    names = [name for name in run.raw.get("expected_sources") or () if isinstance(name, str)]
    return Explanation(
        batch.id,
        run.case_id,
        query,
        *outcome,
        k,
        str(batch.config.get("retriever")),
        [_expectation(name, query, sources, retriever) for name in names],
        len(sources),
        [
            RetrievedSource(source, places, retriever.index.explain(query, source) if retriever.index else None)
            for source, places in first.items()
        ],
        retriever.index is not None and retriever.named_documents() != batch.documents,
        error,
    )


def _find_run(case_id: str, path: Path) -> tuple[Run, Status, str]:
    ids = []
    for run, scored in stored_runs(path):
        if run.case_id == case_id:
            reasons = (verdict.reason for verdict in scored.verdicts if verdict.reason)
            return run, scored.status, run.error or next(reasons, "")
        ids.append(run.case_id)
    hint = did_you_mean(case_id, ids) or f". 'evalloom batches show {path.name}' lists them"
    raise usage_error("no_such_case", f"{path.name} has no case {quote(case_id)}{hint}")


async def _sources(retriever: Retriever, query: str, case: Case, k: int) -> tuple[list[str], str]:
    """The source of every passage that the retriever returns, in order, or its error.

    A retriever that refuses the large number is called again with the k of the batch.
    """
    context = Context(case, Profile("default"), _no_client, _no_client, [])
    error = ""
    try:
        for many in (_DEEP, k):
            try:
                return [passage.source for passage in await retriever.retrieve(query, many, context)], ""
            except CallError as raised:
                error = str(raised)
        return [], error
    finally:
        await retriever.closing()


async def _no_client(request: Request) -> Response:
    raise AssertionError("a retriever calls no llm")


def _expectation(name: str, query: str, sources: list[str], retriever: Retriever) -> Expectation:
    place = next((place for place, source in enumerate(sources, 1) if is_hit(name, source)), 0)
    if retriever.index is None:
        return Expectation(name, [], "", place)
    index = retriever.index
    documents = [path for path in retriever.documents if is_hit(name, path)]
    unread = next((document.reason for document in index.unread() if is_hit(name, document.path)), "")
    explained = [index.explain(query, path) for path in documents[:_MOST_BELOW]]
    # Rank 0 means no match, so it sorts last.
    best = min(explained, key=lambda item: (not item.rank, item.rank), default=None)
    return Expectation(name, documents, unread, place, best)
