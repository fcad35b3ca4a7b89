"""The index of a folder of documents: `refresh` updates it, `search` and its variants query it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shlex
import shutil
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Embedder
from evalloom.core.ranking import Passage, is_hit
from evalloom.core.text import quote
from evalloom.rag.retrieval import bm25
from evalloom.rag.retrieval.chunks import Chunk
from evalloom.rag.retrieval.folder import Unread, scan_folder
from evalloom.rag.retrieval.ingest import IndexOptions, Progress, bring_up_to_date, quiet
from evalloom.rag.retrieval.store import (
    FORMAT,
    STORE_ERRORS,
    DamagedIndex,
    DocumentStore,
    error_text,
    is_damage,
    move_damaged,
    read_format,
    unusable_error,
)
from evalloom.rag.retrieval.vectors import Vectors
from evalloom.rag.retrieval.words import query_words

if TYPE_CHECKING:
    from evalloom.rag.retrieval.vectors import Floats

_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_BATCH = 64
_AT_ONCE = 4
_MIN_FUSED = 100
"""How deep each ranking is at least fused: a chunk that one of them ranks low may still win."""
T = TypeVar("T", bound=Hashable)


class Refreshed(Struct, frozen=True):
    """The size of an index after a refresh, and the changes; `passed_over` counts files of other kinds."""

    documents: int
    chunks: int
    added: int
    changed: int
    removed: int
    unread: list[Unread]
    passed_over: int


class Term(Struct, frozen=True):
    """A query word: the number of chunks that contain it, and its score in the explained chunk."""

    text: str
    chunks: int
    score: float


class Explained(Struct, frozen=True):
    """How a source matches a query: its rank among all matching `sources`, 0 when it does not match."""

    source: str
    rank: int
    sources: int
    passage: Passage | None
    terms: list[Term]


def fused(rankings: Sequence[Sequence[T]], constant: int = 60) -> list[tuple[T, float]]:
    """Reciprocal-rank fusion: the sum of 1 / (constant + rank) over the rankings, the best first.

    Equal sums keep the order of the earlier ranking.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1 / (constant + rank)
    return sorted(scores.items(), key=lambda item: -item[1])


def open_index(root: Path, folder: Path, options: IndexOptions = IndexOptions(), frozen: bool = False) -> Index:
    """Open the index of the documents under `root`, stored in `folder`.

    A `frozen` index is used as stored; otherwise call `refresh` first.
    """
    if options.chunk < 1 or not 0 <= options.overlap <= options.chunk // 2:
        message = f"expected a chunk of at least 1 and an overlap of 0 to half of it, got {options.chunk} and"
        raise usage_error("bad_chunk_size", f"{message} {options.overlap}. Give other sizes")
    if not root.is_dir():
        raise usage_error("root_missing", f"{root}: there is no such folder of documents. Name one with --root")
    index = Index(root, folder, options)
    if frozen:
        index.load()
    return index


class Index:
    """Chunks of documents with their words and vectors. Holds files open: close it."""

    def __init__(self, root: Path, folder: Path, options: IndexOptions) -> None:
        self.root = root
        self.options = options
        self.damaged_copy: Path | None = None
        """Where a damaged store was moved, if any; the store has been rebuilt."""
        identity = f"{os.path.realpath(root)}\n{options.chunk}\n{options.overlap}"
        folder = folder.absolute()
        self._common = folder
        self._folder = folder / digest_bytes(identity.encode("utf-8", "surrogateescape"), 8)
        self._path = self._folder / "index.sqlite"
        self._store: DocumentStore | None = None
        self._inode = 0
        self._is_readonly = False
        self._matrix: bm25.Matrix | None = None
        self._vectors: Vectors | None = None
        self._stacked: dict[str, Floats] = {}

    def close(self) -> None:
        self._close_store()
        if self._vectors is not None:
            self._vectors.close()
            self._vectors = None

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._matrix = None
        self._stacked.clear()

    # -- refresh --------------------------------------------------------------------------------------

    def refresh(self, progress: Progress = quiet) -> Refreshed:
        """Update the index from the files; fast when nothing changed. Waits for other processes that refresh it."""
        with self._locked(fcntl.LOCK_EX), self._translate_errors():
            try:
                return self._refresh(progress)
            except STORE_ERRORS as error:
                if not is_damage(error):
                    raise
                self._close_store()
                self.damaged_copy = move_damaged(self._path)
                return self._refresh(progress)

    def _refresh(self, progress: Progress) -> Refreshed:
        store = self._open_store()
        store.rollback()
        # Cached reads belong to the old snapshot, and would be stale if this fails half-way.
        self._matrix = None
        self._stacked.clear()
        before = store.digests()
        scan = scan_folder(self.root)
        try:
            bring_up_to_date(store, self.root, scan, self.options, progress)
        except BaseException:
            store.rollback()
            raise
        self._matrix = self._matrix_of(store)
        for path in self._folder.iterdir():
            # Matrices of older snapshots, and those that a killed process did not finish.
            if path.name.startswith(("bm25-", "making-")) and path.name != self._matrix_name(store):
                shutil.rmtree(path, ignore_errors=True)
        after = store.digests()
        changed = sum(before[source] != digest for source, digest in after.items() if source in before)
        added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
        return Refreshed(len(after), len(self._matrix.ids), added, changed, removed, store.unread(), scan.passed_over)

    def _open_store(self) -> DocumentStore:
        """Open the store; create it when it is missing or has another format."""
        inode = self._path.stat().st_ino if self._path.exists() else 0
        if self._store is not None and (inode, self._is_readonly) == (self._inode, self._store.is_readonly):
            return self._store
        self._close_store()
        if not self._is_readonly and read_format(self._path) not in (0, FORMAT):
            move_damaged(self._path).unlink()
        self._store = DocumentStore(self._path, self._is_readonly)
        self._inode = self._path.stat().st_ino
        return self._store

    def load(self) -> None:
        """Load the stored index as it is. Raises EvalloomError when it is missing or incomplete."""
        if not self._path.exists():
            raise self._missing("is not indexed yet")
        with self._locked(fcntl.LOCK_SH), self._translate_errors():
            if read_format(self._path, self._is_readonly) != FORMAT:
                raise self._missing("was indexed by another version of evalloom")
            store = self._open_store()
            if not store.is_complete:
                raise self._missing("is indexed only in part")
            self._matrix = self._matrix_of(store)

    def _missing(self, state: str) -> EvalloomError:
        sizes = f"with chunks of {self.options.chunk} and an overlap of {self.options.overlap}"
        return EvalloomError("index_missing", f"{self.root}: {state} ({sizes}). {self._how_to_index()}")

    def _how_to_index(self) -> str:
        usual = IndexOptions()
        chunk = f" --chunk {self.options.chunk}" if self.options.chunk != usual.chunk else ""
        overlap = f" --overlap {self.options.overlap}" if self.options.overlap != usual.overlap else ""
        return f"Type: evalloom rag index --root {shlex.quote(str(self.root))}{chunk}{overlap}"

    def _matrix_of(self, store: DocumentStore) -> bm25.Matrix:
        """Load or build the matrix of a new snapshot, which all later reads see."""
        store.begin_snapshot()
        folder = self._folder / self._matrix_name(store)
        matrix = bm25.load(folder)
        if matrix is None:
            try:
                matrix = bm25.build(store.postings(), store.term_count())
            except ValueError as error:
                raise DamagedIndex(str(error)) from None
            # Without space or permission to write, the matrix in memory is enough.
            with suppress(OSError):
                bm25.save(matrix, folder)
                matrix = bm25.load(folder) or matrix
        return matrix

    def _matrix_name(self, store: DocumentStore) -> str:
        return f"bm25-{store.store_id}-{store.generation}"

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Lock out other processes; the lock ends with the process, even when it crashes."""
        self._is_readonly = False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if kind == fcntl.LOCK_EX or error.errno not in _UNWRITABLE:
                raise unusable_error(self._folder, error) from None
            # No process can write in a read-only folder, so a reader needs no lock.
            self._is_readonly = True
            yield
            return
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of the store into EvalloomError; move a damaged store out of the way."""
        try:
            yield
        except STORE_ERRORS as error:
            if not is_damage(error):
                raise unusable_error(self._path, error) from None
            self._close_store()
            message = f"{self._path}: the index is damaged ({error_text(error)})"
            if self._is_readonly:
                raise EvalloomError("index_damaged", f"{message}. Copy it here again") from None
            # Another process may have replaced the store since; then leave the new one alone.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                message += f" and was moved to {move_damaged(self._path).name}"
            raise EvalloomError("index_damaged", f"{message}. {self._how_to_index()}") from None
        except OSError as error:
            raise unusable_error(self._folder, error) from None

    # -- queries --------------------------------------------------------------------------------------

    def _ready(self) -> tuple[DocumentStore, bm25.Matrix]:
        if self._store is None or self._matrix is None:
            self.load()
        assert self._store is not None and self._matrix is not None
        return self._store, self._matrix

    def documents(self) -> dict[str, str]:
        """The digest of every indexed document by its path from the root."""
        with self._translate_errors():
            return self._ready()[0].digests()

    def chunk_count(self) -> int:
        """Number of indexed chunks."""
        with self._translate_errors():
            return len(self._ready()[1].ids)

    def unread(self) -> list[Unread]:
        """Documents that could not be read, and why."""
        with self._translate_errors():
            return self._ready()[0].unread()

    def search(self, query: str, k: int) -> list[Passage]:
        """The best chunks by BM25 that contain a word of the query."""
        with self._translate_errors():
            return [self._passage(row, score) for row, score in self._by_words(query, k)]

    def _by_words(self, query: str, k: int) -> list[tuple[int, float]]:
        _, matrix = self._ready()
        scores = matrix.score([term for _, term in self._terms(query) if term is not None])
        return [(row, float(scores[row])) for row in bm25.best(scores, k)] if k > 0 else []

    def _terms(self, query: str) -> list[tuple[str, int | None]]:
        """The distinct words of a query with their term ids; None for words in no document."""
        store, _ = self._ready()
        return [(word, store.term(word)) for word in dict.fromkeys(query_words(query))]

    def _passage(self, row: int, score: float) -> Passage:
        store, matrix = self._ready()
        return _as_passage(*store.chunk(int(matrix.ids[row])), score)

    def passages(self, source: str) -> list[Passage]:
        """All passages of a document in order, without scores."""
        with self._translate_errors():
            store, _ = self._ready()
            return [_as_passage(*store.chunk(id)) for id in store.chunks_of(source)]

    def explain(self, query: str, source: str) -> Explained:
        """Explain why a source matches or not. A folder or path suffix stands for the best source it matches."""
        with self._translate_errors():
            _, matrix = self._ready()
            terms = self._terms(query)
            scores = matrix.score([term for _, term in terms if term is not None])
            best = matrix.best_of_documents(scores)
            path, place = self._best_named(source, best)
            row = None
            if place is not None and best[place] > 0:
                start, *after = (int(first) for first in matrix.firsts[place : place + 2])
                row = start + int(scores[start : after[0] if after else None].argmax())
            return Explained(
                source=path,
                rank=0 if row is None or place is None else _rank(best, place),
                sources=int((best > 0).sum()),
                passage=None if row is None else self._passage(row, float(scores[row])),
                terms=[
                    Term(word, 0, 0.0)
                    if term is None
                    else Term(word, matrix.chunks_with(term), matrix.added(term, row) if row is not None else 0.0)
                    for word, term in terms
                ],
            )

    def _best_named(self, source: str, best: Floats) -> tuple[str, int | None]:
        """The best document that matches a path, and its position; None when it has no chunk."""
        store, matrix = self._ready()
        documents = store.digests()
        named = [source] if source in documents else [path for path in documents if is_hit(source, path)]
        firsts = [(path, store.first_chunk(path)) for path in named]
        starts = matrix.ids[matrix.firsts]
        places = [(path, int((starts == first).argmax())) for path, first in firsts if first is not None]
        if not places:
            return (named[0] if named else source), None
        return min(places, key=lambda named_place: _rank(best, named_place[1]))

    # -- by vectors -----------------------------------------------------------------------------------

    async def embed(
        self, embedder: Embedder, model: str, progress: Progress = quiet, queries: Sequence[str] = ()
    ) -> int:
        """Embed chunks and queries that lack a vector of this model, storing each batch at once; return the count."""
        lacking = self._vector_store().missing(model, [*self.texts(), *queries])
        batches = iter([lacking[at : at + _BATCH] for at in range(0, len(lacking), _BATCH)])
        done = 0

        async def work() -> None:
            nonlocal done
            for batch in batches:
                self._vector_store().put(model, batch, await embedder(batch))
                done += len(batch)
                progress(done, len(lacking), "")

        workers = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return done

    def _vector_store(self) -> Vectors:
        if self._vectors is None:
            self._common.mkdir(parents=True, exist_ok=True)
            self._vectors = Vectors(self._common / "vectors.sqlite")
        return self._vectors

    def texts(self) -> list[str]:
        """The text of every chunk below its headings, as indexed and embedded."""
        with self._translate_errors():
            return [f"{heading}\n{text}" if heading else text for heading, text in self._ready()[0].texts()]

    async def search_dense(self, query: str, k: int, embedder: Embedder, model: str) -> list[Passage]:
        """The best chunks by cosine similarity to the query."""
        nearest = await self._by_vectors(query, k, embedder, model)
        with self._translate_errors():
            return [self._passage(row, score) for row, score in nearest]

    async def search_hybrid(self, query: str, k: int, embedder: Embedder, model: str) -> list[Passage]:
        """The best chunks by reciprocal-rank fusion of both rankings; the score is the fused one."""
        many = max(_MIN_FUSED, 10 * k)
        with self._translate_errors():
            by_words = [row for row, _ in self._by_words(query, many)]
        by_vectors = [row for row, _ in await self._by_vectors(query, many, embedder, model)]
        # Equal scores keep the order of rows, as everywhere.
        ranking = sorted(fused([by_words, by_vectors]), key=lambda item: (-item[1], item[0]))
        with self._translate_errors():
            return [self._passage(row, score) for row, score in ranking[: max(k, 0)]]

    async def _by_vectors(self, query: str, k: int, embedder: Embedder, model: str) -> list[tuple[int, float]]:
        vectors = self._vectors_of(model)
        if k <= 0 or not len(vectors):
            return []
        query_vector = self._vector_store().get(model, query)
        if query_vector is None:
            self._vector_store().put(model, [query], await embedder([query]))
            query_vector = self._vector_store().get(model, query)
        assert query_vector is not None
        return await asyncio.to_thread(_nearest, vectors, query_vector, k)

    def _vectors_of(self, model: str) -> Floats:
        """The vectors of all chunks, by row."""
        if model not in self._stacked:
            texts = self.texts()
            lacking = self._vector_store().missing(model, texts)
            if lacking:
                message = f"{len(lacking)} texts have no vector of {quote(model)}. Call embed before search"
                raise EvalloomError("vectors_missing", message)
            self._stacked[model] = self._vector_store().stacked(model, texts)
        return self._stacked[model]


def _as_passage(path: str, chunk: Chunk, score: float | None = None) -> Passage:
    return Passage(path, chunk.text, score, chunk.line, chunk.page, chunk.heading, chunk.start, chunk.end)


def _nearest(vectors: Floats, query_vector: Floats, k: int) -> list[tuple[int, float]]:
    # Rounded, because the same text may differ in the last digits at another row.
    scores = (vectors @ query_vector).round(6)
    return [(row, float(scores[row])) for row in bm25.best(scores, k, above=-2.0)]


def _rank(best: Floats, place: int) -> int:
    """The rank of a document by its best score; equal scores in the order of documents."""
    mine = best[place]
    return int((best > mine).sum() + (best[:place] == mine).sum()) + 1
