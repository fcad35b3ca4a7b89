"""Vectors of texts, kept by model and text, in a file of their own: what was paid for outlives every index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.errors import CallError, EvalloomError
from evalloom.model import quote
from evalloom.retrieval.store import is_damage, set_aside, unusable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_TABLE = """
CREATE TABLE IF NOT EXISTS vectors (
    model TEXT NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (model, text)
) WITHOUT ROWID
"""


def key_of(text: str) -> bytes:
    """What a text is known by."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Vectors:
    """One SQLite file. Several processes may add to it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._faults_told():
            try:
                self._db = _opened(path)
            except sqlite3.DatabaseError as fault:
                if not is_damage(fault):
                    raise
                set_aside(path)
                self._db = _opened(path)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _faults_told(self) -> Iterator[None]:
        """Says what is wrong with the file; a damaged one is out of the way next time."""
        try:
            yield
        except sqlite3.DatabaseError as fault:
            if not is_damage(fault):
                raise unusable(self._path, fault) from None
            aside = set_aside(self._path)
            message = f"{self._path}: the vectors are damaged ({str(fault).lower()}) and were moved to {aside.name}"
            raise EvalloomError("index_damaged", f"{message}. Run it again to make new ones") from None

    def missing(self, model: str, texts: Iterable[str]) -> list[str]:
        """Those of the texts that have no vector of this model, each once."""
        with self._faults_told():
            known = {key for (key,) in self._db.execute("SELECT text FROM vectors WHERE model = ?", (model,))}
        return [text for text in dict.fromkeys(texts) if key_of(text) not in known]

    def get(self, model: str, text: str) -> Floats | None:
        import numpy as np

        sought = (model, key_of(text))
        with self._faults_told():
            row = self._db.execute("SELECT vector FROM vectors WHERE model = ? AND text = ?", sought).fetchone()
        return None if row is None else np.frombuffer(row[0], "<f4")

    def put(self, model: str, texts: Sequence[str], given: Any) -> None:
        """Keeps what an embedder gave for texts, of length 1. Raises CallError where that is no vectors."""
        vectors = _normal(given, len(texts), self._length(model), model)
        rows = [(model, key_of(text), one.tobytes()) for text, one in zip(texts, vectors, strict=True)]
        with self._faults_told(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _length(self, model: str) -> int:
        """How long the vectors of a model are; 0 when there are none yet."""
        with self._faults_told():
            row = self._db.execute("SELECT length(vector) FROM vectors WHERE model = ? LIMIT 1", (model,)).fetchone()
        return row[0] // 4 if row else 0

    def stacked(self, model: str, texts: Iterable[str]) -> Floats:
        """The vectors of texts, which all have one, as the rows of a matrix."""
        import numpy as np

        with self._faults_told():
            known = dict(self._db.execute("SELECT text, vector FROM vectors WHERE model = ?", (model,)))
        found = b"".join(known[key_of(text)] for text in texts)
        return np.frombuffer(found, "<f4").reshape(-1, self._length(model) or 1)


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_TABLE)
    except BaseException:
        db.close()
        raise
    return db


def _normal(given: Any, count: int, length: int, model: str) -> Floats:
    """Vectors of length 1, so that a product is a cosine."""
    import numpy as np

    try:
        vectors = np.asarray(given, dtype="<f4")
    except (TypeError, ValueError):
        raise _bad(model, f"{count} lists of numbers, all of one length") from None
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise _bad(model, f"{count} lists of numbers, all of one length")
    if length and vectors.shape[1] != length:
        raise _bad(model, f"vectors of {length} numbers as before, got {vectors.shape[1]}")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    normal: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype("<f4")
    return normal


def _bad(model: str, expected: str) -> CallError:
    message = f"embeddings {quote(model)}: expected {expected}. Check that the model is one for embeddings"
    return CallError("bad_embeddings", message)
