"""The index of a folder of documents: brought up to date by `refresh`, asked by `search` and its kin."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from msgspec import Struct

from evalloom.errors import EvalloomError, usage_error
from evalloom.model import Embedder, quote
from evalloom.ranking import Passage, is_hit
from evalloom.retrieval import bm25
from evalloom.retrieval.chunks import Chunk, chunks
from evalloom.retrieval.folder import Found, Stamp, Unread, find, suffix_of
from evalloom.retrieval.fusion import fused
from evalloom.retrieval.readers import LARGEST, Unreadable, read
from evalloom.retrieval.store import FORMAT, Store, format_of, is_damage, set_aside, unusable
from evalloom.retrieval.vectors import Vectors
from evalloom.retrieval.words import words

if TYPE_CHECKING:
    from evalloom.retrieval.vectors import Floats

Progress = Callable[[int, int], None]
"""Told how much is done, of how much."""

_STEP_S = 2.0
"""How much work an interruption may cost."""
_JUST_NOW_NS = 100_000_000
"""A file that was changed this lately may change again without its time doing so: clocks of disks are coarse."""
_UNTRUSTED = -1
_BATCH = 64
_AT_ONCE = 4


class IndexOptions(Struct, frozen=True):
    """How documents are cut: the most characters of a chunk, and how many of them the next one repeats."""

    chunk: int = 800
    overlap: int = 100


class Refreshed(Struct, frozen=True):
    """What an index holds now, and what that changed; `passed_over` counts files of kinds that are not read."""

    documents: int
    chunks: int
    added: int
    changed: int
    removed: int
    unread: list[Unread]
    passed_over: int


class Term(Struct, frozen=True):
    """A word of a query: how many chunks of all have it, and what it adds to the score of the one in question."""

    text: str
    chunks: int
    score: float


class Explained(Struct, frozen=True):
    """How a source fares for a query: its rank among the `sources` that match at all, 0 when it does not."""

    source: str
    rank: int
    sources: int
    passage: Passage | None
    terms: list[Term]


def _quiet(done: int, total: int) -> None:
    pass


def open_index(root: Path, folder: Path, options: IndexOptions = IndexOptions(), frozen: bool = False) -> Index:
    """The index of the documents under a folder, stored inside of `folder`.

    It is used as it is stored when `frozen`; otherwise call `refresh` first.
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
        self.set_aside: Path | None = None
        """Where a damaged store was moved, when one was found; what is here now was made anew."""
        known_by = f"{os.path.realpath(root)}\n{options.chunk}\n{options.overlap}"
        self._common = folder
        self._folder = folder / blake2b(known_by.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        self._path = self._folder / "index.sqlite"
        self._store: Store | None = None
        self._inode = 0
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

    # -- bringing up to date --------------------------------------------------------------------------

    def refresh(self, progress: Progress = _quiet) -> Refreshed:
        """Brings the index up to date with the files; quick when nothing changed. Waits while another process does."""
        with self._locked(fcntl.LOCK_EX), self._faults_told():
            try:
                return self._refresh(progress)
            except sqlite3.DatabaseError as fault:
                if not is_damage(fault):
                    raise
                self._close_store()
                self.set_aside = set_aside(self._path)
                return self._refresh(progress)

    def _refresh(self, progress: Progress) -> Refreshed:
        store = self._opened()
        store.let_go()
        before = store.digests()
        found = find(self.root)
        try:
            _bring_up_to_date(store, self.root, found, self.options, progress)
        except BaseException:
            store.let_go()
            raise
        self._stacked.clear()
        self._matrix = self._matrix_of(store)
        self._remove_others(store)
        after = store.digests()
        changed = sum(before[path] != digest for path, digest in after.items() if path in before)
        added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
        return Refreshed(len(after), len(self._matrix.ids), added, changed, removed, store.unread(), found.passed_over)

    def _opened(self) -> Store:
        """The store, made anew when there is none, or one of another format."""
        inode = self._path.stat().st_ino if self._path.exists() else 0
        if self._store is not None and inode == self._inode:
            return self._store
        self._close_store()
        if format_of(self._path) not in (0, FORMAT):
            set_aside(self._path).unlink()
        self._store = Store(self._path)
        self._inode = self._path.stat().st_ino
        return self._store

    def load(self) -> None:
        """Reads what is stored, as it is. Raises EvalloomError where there is nothing, or only a part."""
        if not self._path.exists():
            raise self._missing("is not indexed yet")
        with self._locked(fcntl.LOCK_SH), self._faults_told():
            if format_of(self._path) != FORMAT:
                raise self._missing("was indexed by another version of evalloom")
            store = self._opened()
            if not store.is_complete:
                raise self._missing("is indexed only in part")
            self._matrix = self._matrix_of(store)

    def _missing(self, state: str) -> EvalloomError:
        sizes = f"with chunks of {self.options.chunk} and an overlap of {self.options.overlap}"
        return EvalloomError("index_missing", f"{self.root}: {state} ({sizes}). {self._how_to_index()}")

    def _how_to_index(self) -> str:
        return f"Type: evalloom rag index --root {shlex.quote(str(self.root))}"

    def _matrix_of(self, store: Store) -> bm25.Matrix:
        """The matrix of what is stored now, which from here on is what every read sees."""
        store.hold()
        folder = self._folder / self._matrix_name(store)
        found = bm25.load(folder)
        if found is None:
            made = bm25.make(store.postings(), store.term_count())
            bm25.save(made, folder)
            found = bm25.load(folder) or made
        return found

    def _matrix_name(self, store: Store) -> str:
        return f"bm25-{store.birth}-{store.generation}"

    def _remove_others(self, store: Store) -> None:
        """Removes matrices of what was stored before, and such as were never finished."""
        for path in self._folder.iterdir():
            if path.name.startswith(("bm25-", "making-")) and path.name != self._matrix_name(store):
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Keeps other processes out; the lock ends with the process, however that ends."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as fault:
            raise unusable(self._folder, fault) from None
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _faults_told(self) -> Iterator[None]:
        """Says what is wrong with the store; a damaged one is out of the way next time."""
        try:
            yield
        except sqlite3.DatabaseError as fault:
            if not is_damage(fault):
                raise unusable(self._path, fault) from None
            self._close_store()
            aside = set_aside(self._path)
            message = f"{self._path}: the index is damaged ({str(fault).lower()}) and was moved to {aside.name}"
            raise EvalloomError("index_damaged", f"{message}. {self._how_to_index()}") from None
        except OSError as fault:
            raise unusable(self._folder, fault) from None

    # -- asking ---------------------------------------------------------------------------------------

    def _ready(self) -> tuple[Store, bm25.Matrix]:
        if self._store is None or self._matrix is None:
            self.load()
        assert self._store is not None and self._matrix is not None
        return self._store, self._matrix

    def documents(self) -> dict[str, str]:
        """The path of every document that is indexed, from the root, and a digest of its content."""
        with self._faults_told():
            return self._ready()[0].digests()

    def unread(self) -> list[Unread]:
        """What could not be read, and why."""
        with self._faults_told():
            return self._ready()[0].unread()

    def search(self, query: str, k: int) -> list[Passage]:
        """The best chunks by BM25, of those that have a word of the query at all."""
        with self._faults_told():
            return [self._passage(row, score) for row, score in self._by_words(query, k)]

    def _by_words(self, query: str, k: int) -> list[tuple[int, float]]:
        _, matrix = self._ready()
        scores = matrix.score([term for _, term in self._terms(query) if term is not None])
        return [(row, float(scores[row])) for row in bm25.best(scores, k)] if k > 0 else []

    def _terms(self, query: str) -> list[tuple[str, int | None]]:
        """The words of a query, each once, with their numbers; None for those in no document."""
        store, _ = self._ready()
        return [(word, store.term(word)) for word in dict.fromkeys(words(query))]

    def _passage(self, row: int, score: float) -> Passage:
        store, matrix = self._ready()
        return _as_passage(*store.chunk(int(matrix.ids[row])), score)

    def passages(self, source: str) -> list[Passage]:
        """All passages of a document in their order, without scores."""
        with self._faults_told():
            store, _ = self._ready()
            return [_as_passage(*store.chunk(id)) for id in store.chunks_of(source)]

    def explain(self, query: str, source: str) -> Explained:
        """Why a source is found, or is not. A folder, or the end of a path, stands for the best source it names."""
        with self._faults_told():
            _, matrix = self._ready()
            terms = self._terms(query)
            scores = matrix.score([term for _, term in terms if term is not None])
            best = matrix.best_of_documents(scores)
            path, place = self._best_named(source, best)
            row = self._best_row(scores, place) if place is not None and best[place] > 0 else None
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
        """The best document that a path names, and its place among the documents; None when it has no chunk."""
        documents = self.documents()
        named = [source] if source in documents else [path for path in documents if is_hit(source, path)]
        places = [(path, place) for path in named if (place := self._place(path)) is not None]
        if not places:
            return (named[0] if named else source), None
        return min(places, key=lambda found: _rank(best, found[1]))

    def _place(self, path: str) -> int | None:
        store, matrix = self._ready()
        first = store.first_chunk(path)
        return None if first is None else int((matrix.ids[matrix.firsts] == first).argmax())

    def _best_row(self, scores: Floats, place: int) -> int:
        _, matrix = self._ready()
        start = int(matrix.firsts[place])
        stop = int(matrix.firsts[place + 1]) if place + 1 < len(matrix.firsts) else len(matrix.ids)
        return start + int(scores[start:stop].argmax())

    # -- by vectors -----------------------------------------------------------------------------------

    async def embed(
        self, embedder: Embedder, model: str, progress: Progress = _quiet, queries: Sequence[str] = ()
    ) -> int:
        """Makes the vectors that chunks and queries lack for this model; how many. What was made is kept at once."""
        lacking = self._kept().missing(model, [*self.texts(), *queries])
        batches = iter([lacking[at : at + _BATCH] for at in range(0, len(lacking), _BATCH)])
        done = 0

        async def work() -> None:
            nonlocal done
            for batch in batches:
                self._kept().put(model, batch, await embedder(batch))
                done += len(batch)
                progress(done, len(lacking))

        workers = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return done

    def _kept(self) -> Vectors:
        if self._vectors is None:
            self._common.mkdir(parents=True, exist_ok=True)
            self._vectors = Vectors(self._common / "vectors.sqlite")
        return self._vectors

    def texts(self) -> list[str]:
        """Every chunk with its headings above it: what words and vectors are made of."""
        with self._faults_told():
            return [f"{heading}\n{text}" if heading else text for heading, text in self._ready()[0].texts()]

    async def search_dense(self, query: str, k: int, embedder: Embedder, model: str) -> list[Passage]:
        """The best chunks by the cosine of their vectors and the query's."""
        found = await self._by_vectors(query, k, embedder, model)
        return [self._passage(row, score) for row, score in found]

    async def search_hybrid(self, query: str, k: int, embedder: Embedder, model: str) -> list[Passage]:
        """The best chunks by their places in both rankings; the score is the fused one."""
        many = max(100, 10 * k)
        by_words = [row for row, _ in self._by_words(query, many)]
        by_vectors = [row for row, _ in await self._by_vectors(query, many, embedder, model)]
        # Of equal scores the order is that of rows, as everywhere.
        found = sorted(fused([by_words, by_vectors]), key=lambda one: (-one[1], one[0]))
        return [self._passage(row, score) for row, score in found[: max(k, 0)]]

    async def _by_vectors(self, query: str, k: int, embedder: Embedder, model: str) -> list[tuple[int, float]]:
        vectors = self._vectors_of(model)
        if k <= 0 or not len(vectors):
            return []
        sought = self._kept().get(model, query)
        if sought is None:
            self._kept().put(model, [query], await embedder([query]))
            sought = self._kept().get(model, query)
        assert sought is not None
        return await asyncio.to_thread(_nearest, vectors, sought, k)

    def _vectors_of(self, model: str) -> Floats:
        """The vectors of all chunks, by row."""
        if model not in self._stacked:
            texts = self.texts()
            lacking = self._kept().missing(model, texts)
            if lacking:
                message = f"{len(lacking)} texts have no vector of {quote(model)}. Call embed before search"
                raise EvalloomError("vectors_missing", message)
            self._stacked[model] = self._kept().stacked(model, texts)
        return self._stacked[model]


def _as_passage(path: str, chunk: Chunk, score: float | None = None) -> Passage:
    return Passage(path, chunk.text, score, chunk.line, chunk.page, chunk.heading, chunk.start, chunk.end)


def _nearest(vectors: Floats, sought: Floats, k: int) -> list[tuple[int, float]]:
    # Rounded, because the same text may come out a hair different at another row.
    scores = (vectors @ sought).round(6)
    return [(row, float(scores[row])) for row in bm25.best(scores, k, above=-2.0)]


def _rank(best: Floats, place: int) -> int:
    """The rank of a document by its best score; of equal ones comes first what stands first."""
    mine = best[place]
    return int((best > mine).sum() + (best[:place] == mine).sum()) + 1


# -- documents into the store -------------------------------------------------------------------------


def _bring_up_to_date(store: Store, root: Path, found: Found, options: IndexOptions, progress: Progress) -> None:
    known = store.known()
    refused = {one.path: one.reason for one in found.unread if one.path not in found.stamps}
    gone = known.keys() - found.stamps.keys() - refused.keys()
    unread = [path for path, reason in refused.items() if path not in known or known[path][2] != reason]
    changed = sorted(path for path, stamp in found.stamps.items() if path not in known or known[path][0] != stamp)
    if not gone and not unread and not changed and store.is_complete:
        return
    store.begin()
    for path in gone:
        store.remove(path)
    for path in unread:
        store.put_unread(path, Stamp(_UNTRUSTED, _UNTRUSTED), "", refused[path])
    since = monotonic()
    for done, path in enumerate(changed):
        progress(done, len(changed))
        _take(store, root, path, known.get(path), options)
        if monotonic() - since > _STEP_S:
            store.commit()
            store.begin()
            since = monotonic()
    progress(len(changed), len(changed))
    store.commit(is_complete=True)


def _take(store: Store, root: Path, path: str, known: tuple[Stamp, str, str] | None, options: IndexOptions) -> None:
    """Reads a file, and stores it when its content is not the one that is known."""
    now = time_ns()
    try:
        with (root / path).open("rb") as stream:
            stat = os.fstat(stream.fileno())
            content = stream.read(LARGEST + 1)
    except OSError as fault:
        reason = f"cannot be opened: {(fault.strerror or str(fault)).lower()}"
        store.put_unread(path, Stamp(_UNTRUSTED, _UNTRUSTED), "", reason)
        return
    stamp = Stamp(stat.st_size, stat.st_mtime_ns if stat.st_mtime_ns < now - _JUST_NOW_NS else _UNTRUSTED)
    digest = blake2b(content, digest_size=16).hexdigest()
    if known is not None and known[1:] == (digest, ""):
        store.stamp(path, stamp)
        return
    try:
        document = read(path, suffix_of(path), content)
    except Unreadable as fault:
        stamp = Stamp(stat.st_size, _UNTRUSTED) if fault.may_change else stamp
        store.put_unread(path, stamp, digest, str(fault))
        return
    cut = chunks(document, options.chunk, options.overlap)
    counted = ((chunk, words(f"{chunk.heading}\n{chunk.text}")) for chunk in cut if chunk.text.strip())
    store.put(path, stamp, digest, [(chunk, found) for chunk, found in counted if found])
