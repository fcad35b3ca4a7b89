"""Stores vectors by model and text in a separate file, so that paid embeddings outlive every index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.text import quote
from evalloom.rag.retrieval.store import STORE_ERRORS, error_text, is_damage, move_damaged, unusable_error

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
    """The key of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Vectors:
    """One SQLite file. Several processes may add to it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged_copy: Path | None = None
        """Where a damaged file was moved, if any; its vectors are computed again."""
        self._lengths: dict[str, int] = {}
        with self._translate_errors():
            try:
                self._db = _connect(path)
            except STORE_ERRORS as error:
                if not is_damage(error):
                    raise
                self.damaged_copy = move_damaged(path)
                self._db = _connect(path)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of the file into EvalloomError; replace a damaged file by an empty one."""
        try:
            yield
        except STORE_ERRORS as error:
            if not is_damage(error):
                raise unusable_error(self._path, error) from None
            self._db.close()
            moved = move_damaged(self._path)
            self._lengths.clear()
            self._db = _connect(self._path)
            message = f"{self._path}: the vectors are damaged ({error_text(error)}) and were moved to {moved.name}"
            raise EvalloomError("index_damaged", f"{message}. Run it again to make new ones") from None

    def missing(self, model: str, texts: Iterable[str]) -> list[str]:
        """The distinct texts without a vector of this model."""
        stored = {key for (key,) in self._select_rows(model, "text")}
        return [text for text in dict.fromkeys(texts) if key_of(text) not in stored]

    def _select_rows(self, model: str, columns: str) -> list[tuple[Any, ...]]:
        """The rows of a model, without vectors of a deviating length, which are incomplete."""
        sql = f"SELECT {columns} FROM vectors WHERE model = ? AND length(vector) = ?"
        with self._translate_errors():
            return self._db.execute(sql, (model, 4 * self._length(model))).fetchall()

    def get(self, model: str, text: str) -> Floats | None:
        import numpy as np

        parameters = (model, key_of(text), 4 * self._length(model))
        with self._translate_errors():
            row = self._db.execute(
                "SELECT vector FROM vectors WHERE model = ? AND text = ? AND length(vector) = ?", parameters
            ).fetchone()
        return None if row is None else np.frombuffer(row[0], "<f4")

    def put(self, model: str, texts: Sequence[str], embeddings: Any) -> None:
        """Store normalized embeddings of texts. Raises CallError when they are not vectors."""
        vectors = _normalize(embeddings, len(texts), model)
        length = self._length(model) or vectors.shape[1]
        if vectors.shape[1] != length:
            advice = f"If another model has taken its place, delete {self._path}, or give the model another name"
            raise _bad(model, f"vectors of {length} numbers as before, got {vectors.shape[1]}", advice)
        rows = [(model, key_of(text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self._translate_errors(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _length(self, model: str) -> int:
        """The most frequent vector length of a model; 0 when there are no vectors."""
        if not self._lengths.get(model):
            sql = "SELECT length(vector) FROM vectors WHERE model = ? GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
            with self._translate_errors():
                row = self._db.execute(sql, (model,)).fetchone()
            self._lengths[model] = row[0] // 4 if row and row[0] else 0
        return self._lengths[model]

    def stacked(self, model: str, texts: Iterable[str]) -> Floats:
        """The vectors of texts as a matrix; every text must have one."""
        import numpy as np

        stored = dict(self._select_rows(model, "text, vector"))
        content = b"".join(stored[key_of(text)] for text in texts)
        return np.frombuffer(content, "<f4").reshape(-1, self._length(model) or 1)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_TABLE)
    except BaseException:
        db.close()
        raise
    return db


def _normalize(embeddings: Any, count: int, model: str) -> Floats:
    """Unit vectors, so that a dot product is a cosine."""
    import numpy as np

    try:
        vectors = np.asarray(embeddings)
    except (TypeError, ValueError, OverflowError):
        raise _bad(model, f"{count} lists of numbers, all of one length") from None
    is_table = vectors.ndim == 2 and len(vectors) == count and vectors.shape[1] > 0
    if not is_table or vectors.dtype.kind not in "fiu" or not np.isfinite(vectors).all():
        raise _bad(model, f"{count} lists of numbers, all of one length")
    exact = vectors.astype(np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True)
    if not largest.all():
        raise _bad(model, "vectors that have a direction, got one that is zero")
    # Scale by the largest component first: squares of extreme numbers overflow or underflow.
    exact /= largest
    normal: Floats = (exact / np.linalg.norm(exact, axis=1, keepdims=True)).astype("<f4")
    return normal


def _bad(model: str, expected: str, advice: str = "Check that the model is one for embeddings") -> CallError:
    return CallError("bad_embeddings", f"embeddings {quote(model)}: expected {expected}. {advice}")
