"""Opens the retriever of a RAG command: the built-in index of a folder, or a user's function or endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from evalloom.core.digest import digest_bytes, digest_of
from evalloom.core.errors import BudgetSpent, CallError, EvalloomError, usage_error
from evalloom.core.model import UNREAD, Context, Embedder, Record
from evalloom.core.ranking import Passage
from evalloom.core.text import pluralize, printable, quote
from evalloom.engine.loop import run_loop
from evalloom.llms import LlmOptions, Llms
from evalloom.llms.budget import Budget
from evalloom.rag.retrieval import Index, IndexOptions, LocalEmbedder, Progress, Refreshed, open_index, quiet
from evalloom.rag.settings import LOCAL_EMBEDDINGS, RagSettings
from evalloom.rag.target import Retrieve, build_retriever, retriever_from_target
from evalloom.settings import Settings, environment, key_of, llm_of, secrets
from evalloom.targets import TargetOptions

FOLDER = Path(".evalloom") / "rag"
"""Folder of the stored indexes."""
BUILTIN = "builtin"
_MOST_K = 1000
_SHORTEST_CHUNK, _LONGEST_CHUNK = 50, 100_000
_MOST_NAMED = 2_000
"""A batch records up to this many documents by name, and one digest for more."""
_SHOWN = 3


class Listener(Struct, frozen=True):
    """Receives warnings and the progress of indexing."""

    warn: Callable[[str], None]
    progress: Progress = quiet


class SearchOptions(RagSettings, frozen=True):
    """What to search, and how. `mode`, `chunk` and the like apply to the built-in retriever."""

    is_frozen: bool = False
    """Whether the stored index is used without bringing it up to date."""


async def _close_nothing() -> None:
    """The `closing` of a retriever that holds no resources."""


class EmbeddingUsage(Struct, frozen=True):
    """How many vectors were made, and the tokens and the cost of making them."""

    vectors: int = 0
    tokens: int = 0
    cost: float = 0.0


class Retriever(Struct, frozen=True):
    """A retriever that is ready for queries, and what a batch records of it."""

    retrieve: Retrieve
    config: Record
    digest: str
    documents: Mapping[str, str] = {}
    index: Index | None = None
    refreshed: Refreshed | None = None
    """The last refresh of the index; None for a frozen index."""
    fill: Callable[[Iterable[str]], EmbeddingUsage] = lambda queries: EmbeddingUsage()
    """Embeds chunks and queries that lack vectors, which may cost money."""
    closing: Callable[[], Awaitable[None]] = _close_nothing
    watch: tuple[Path, ...] = ()
    secrets: tuple[str, ...] = ()

    def named_documents(self) -> dict[str, str]:
        """The documents as a batch records them."""
        unread = {document.path: UNREAD for document in self.index.unread()} if self.index else {}
        if len(self.documents) + len(unread) <= _MOST_NAMED:
            return {**self.documents, **unread}
        lines = "".join(f"{path}\0{content}\n" for path, content in sorted(self.documents.items()))
        return {"": digest_bytes(lines.encode("utf-8", "surrogateescape"))}


def open_retriever(
    search: SearchOptions, settings: Settings, listener: Listener, options: LlmOptions = LlmOptions()
) -> Retriever:
    """Open the retriever and update its index. Raises on every wrong option.

    `options` apply to the embedding client, and their `home` also to the index.
    """
    _check(search)
    if search.retriever == BUILTIN:
        return _builtin(search, settings, listener, options)
    if search.mode != "bm25" or search.is_frozen:
        raise usage_error(
            "bad_option", f"--mode and --frozen-index: go with the built-in retriever, not {quote(search.retriever)}"
        )
    for_target = TargetOptions(environ=environment(settings.folder), secrets=tuple(secrets(settings)))
    if isinstance(search.retriever, str) and not search.retriever.startswith(("python:", "http:", "https:")):
        expected = f"expected {BUILTIN}, python:module:function or http:URL"
        raise usage_error("bad_option", f"--retriever: {expected}, got {search.retriever!r}")
    target = build_retriever(search.retriever, settings.folder, for_target)
    return Retriever(
        retriever_from_target(target),
        {"retriever": target.name},
        target.digest,
        closing=target.close,
        watch=target.watch,
        secrets=target.secrets,
    )


def _check(search: SearchOptions) -> None:
    if not 1 <= search.k <= _MOST_K:
        raise usage_error("bad_option", f"-k: expected 1 to {_MOST_K}, got {search.k}")
    if not _SHORTEST_CHUNK <= search.chunk <= _LONGEST_CHUNK:
        message = f"--chunk: expected {_SHORTEST_CHUNK} to {_LONGEST_CHUNK} characters, got {search.chunk}"
        raise usage_error("bad_option", message)
    if not 0 <= search.overlap <= search.chunk // 2:
        raise usage_error("bad_option", f"--overlap: expected 0 to half of --chunk, got {search.overlap}")


def open_corpus(search: SearchOptions, listener: Listener, home: Path = Path()) -> tuple[Index, Refreshed | None]:
    """Open the index of a folder, and update it unless it is frozen."""
    index = open_index(Path(search.root), home / FOLDER, IndexOptions(search.chunk, search.overlap), search.is_frozen)
    refreshed = None if search.is_frozen else index.refresh(listener.progress)
    if index.damaged_copy is not None:
        listener.warn(
            f"the stored index was damaged and has been rebuilt; the old one is {index.damaged_copy.as_posix()}"
        )
    for line in unread_lines(index):
        listener.warn(line)
    if not index.chunk_count():
        others = (
            f"; {pluralize(refreshed.passed_over, 'file')} of other kinds"
            if refreshed and refreshed.passed_over
            else ""
        )
        message = f"--root {search.root}: there is no document to search: .md, .txt, .html, .pdf or .docx{others}"
        raise usage_error("empty_corpus", message)
    return index, refreshed


def unread_lines(index: Index) -> list[str]:
    """Warnings about documents that could not be read: the first few, and the number of others."""
    unread = index.unread()
    lines = [
        f"{printable(document.path)}: not indexed: {printable(document.reason)} [document_unread]"
        for document in unread[:_SHOWN]
    ]
    more = len(unread) - _SHOWN
    return (
        [*lines, f"{pluralize(more, 'more document')} not indexed: 'evalloom rag index' lists them"]
        if more > 0
        else lines
    )


def _builtin(search: SearchOptions, settings: Settings, listener: Listener, options: LlmOptions) -> Retriever:
    named = search.embeddings or settings.embeddings
    embedding = None if search.mode == "bm25" else _EmbeddingClient(named, settings, listener, options)
    index, refreshed = open_corpus(search, listener, options.home)
    documents = index.documents()
    config: Record = {"retriever": BUILTIN, "mode": search.mode, "chunk": search.chunk, "overlap": search.overlap}
    if embedding:
        config["embeddings"] = embedding.model

    async def retrieve(query: str, k: int, context: Context) -> list[Passage]:
        if embedding is None:
            return index.search(query, k)
        search_by_vector = index.search_dense if search.mode == "dense" else index.search_hybrid
        return await search_by_vector(query, k, embedding.embedder(), embedding.model)

    async def close() -> None:
        if embedding:
            await embedding.close()

    def fill(queries: Iterable[str]) -> EmbeddingUsage:
        return run_loop(embedding.fill(index, list(queries))) if embedding else EmbeddingUsage()

    digest = digest_of(config, sorted(documents.items()))
    return Retriever(retrieve, config, digest, documents, index, refreshed, fill, close)


class _EmbeddingClient:
    """Turns texts into vectors, on this machine or by an llm of the settings; for one event loop at a time."""

    def __init__(self, name: str, settings: Settings, listener: Listener, options: LlmOptions) -> None:
        if not name:
            message = "--mode dense and hybrid need embeddings: --embeddings local, or an llm of evalloom.yaml"
            raise usage_error("no_embeddings", message)
        self._name = name
        self._settings = settings
        self._listener = listener
        self._options = options
        self._llms: Llms | None = None
        self._embedder: Embedder | None = None
        if name == LOCAL_EMBEDDINGS:
            self._embedder = LocalEmbedder()
            self.model = "all-MiniLM-L6-v2"
            return
        llm = llm_of(settings, name)
        if llm.protocol != "openai":
            message = f"--embeddings {name}: expected an llm with the protocol openai, got {llm.protocol}"
            raise usage_error("no_embeddings", message)
        if not options.replay:
            key_of(llm)
        # Two servers may call different models by one name.
        self.model = f"{llm.model or name} at {llm.base_url}" if llm.base_url else llm.model or name

    def embedder(self) -> Embedder:
        if self._embedder is None:
            self._llms = Llms(self._settings, self._options, self._listener.warn)
            self._embedder = self._llms.embedder(self._name)
        return self._embedder

    async def fill(self, index: Index, queries: list[str]) -> EmbeddingUsage:
        """Embed chunks and queries that lack vectors."""
        try:
            vectors = await index.embed(self.embedder(), self.model, self._listener.progress, queries)
            spent = self._llms.budget if self._llms else Budget()
            return EmbeddingUsage(vectors, spent.tokens, spent.cost)
        except CallError as error:
            raise EvalloomError(error.code, self._error_message(error.args[0])) from None
        except BudgetSpent as error:
            raise EvalloomError("stopped", self._error_message(str(error))) from None
        finally:
            await self.close()

    def _error_message(self, reason: str) -> str:
        return f"--embeddings {self._name}: {reason}. Vectors that are done are stored"

    async def close(self) -> None:
        if self._llms is not None:
            await self._llms.close()
            self._llms = self._embedder = None
