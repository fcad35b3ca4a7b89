"""BM25 in the variant of Lucene, over a matrix of term scores by chunk that is stored in memory-mapped files.

The scores equal those of bm25s (method "lucene"). Every change of a document rebuilds the matrix: from the numbers in
the store that takes two seconds for 100,000 chunks, from lists of words in bm25s twelve.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

K1, B = 1.5, 0.75


class Matrix(NamedTuple):
    """The score of each term in each chunk. A row is a chunk; equal scores keep the order of rows.

    For term t, `rows[bounds[t]:bounds[t + 1]]` are its chunks, and the same slice of `scores` its scores.
    """

    scores: Floats
    rows: NDArray[np.int32]
    bounds: Ints
    ids: Ints
    """The id of the chunk in the store, by row."""
    firsts: Ints
    """The first row of each document, in the order of documents."""

    def score(self, terms: Sequence[int]) -> Floats:
        """The score of every chunk for a query of these terms."""
        import numpy as np

        total = np.zeros(len(self.ids), np.float32)
        for term in terms:
            at = slice(self.bounds[term], self.bounds[term + 1])
            np.add.at(total, self.rows[at], self.scores[at])
        return total

    def chunks_with(self, term: int) -> int:
        return int(self.bounds[term + 1] - self.bounds[term])

    def added(self, term: int, row: int) -> float:
        """The score of a term in one chunk."""
        import numpy as np

        start, stop = self.bounds[term], self.bounds[term + 1]
        at = start + np.searchsorted(self.rows[start:stop], row)
        return float(self.scores[at]) if at < stop and self.rows[at] == row else 0.0

    def best_of_documents(self, scores: Floats) -> Floats:
        """The best chunk score of each document."""
        import numpy as np

        return np.maximum.reduceat(scores, self.firsts) if len(self.firsts) else scores[:0]


def best(scores: Floats, k: int, above: float = 0.0) -> list[int]:
    """The rows of the k best scores, best first; equal scores in the order of rows."""
    import numpy as np

    wanted = scores > above
    if len(scores) > k:
        # Keep all ties with the last place, so that the order of rows decides and not the partition.
        wanted &= scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
    rows = np.flatnonzero(wanted)
    return [int(row) for row in rows[np.argsort(-scores[rows], kind="stable")][:k]]


def build(postings: Iterable[tuple[int, str, bytes, bytes]], term_count: int) -> Matrix:
    """Build the matrix from the id, path, terms and counts of all chunks, ordered by document.

    Raises ValueError when they are inconsistent.
    """
    import numpy as np

    ids: list[int] = []
    firsts: list[int] = []
    terms_of, counts_of = bytearray(), bytearray()
    sizes: list[int] = []
    before = None
    for id, path, terms, counts in postings:
        if not isinstance(terms, bytes) or not isinstance(counts, bytes) or len(terms) != len(counts) or len(terms) % 4:
            raise ValueError("the words of a chunk are not whole")
        if path != before:
            firsts.append(len(ids))
            before = path
        ids.append(id)
        terms_of += terms
        counts_of += counts
        sizes.append(len(terms) // 4)
    terms_at = np.frombuffer(terms_of, "<i4")
    counts_at = np.frombuffer(counts_of, "<i4").astype(np.float32)
    if len(terms_at) and (terms_at.min() < 0 or terms_at.max() >= term_count or counts_at.min() < 1):
        raise ValueError("a chunk has words that are not known")
    rows = np.repeat(np.arange(len(ids), dtype=np.int32), sizes)
    scores = _scores(terms_at, counts_at, rows, len(ids), term_count)
    # By term, then by place, so that the rows of a term keep their order. Sorting such keys takes a fifth of `argsort`.
    order = np.sort((terms_at.astype(np.int64) << 32) | np.arange(len(terms_at))) & 0xFFFFFFFF
    bounds = np.zeros(term_count + 1, np.int64)
    np.cumsum(np.bincount(terms_at, minlength=term_count), out=bounds[1:])
    return Matrix(scores[order], rows[order], bounds, np.array(ids, np.int64), np.array(firsts, np.int64))


def _scores(terms: NDArray[np.int32], counts: Floats, rows: NDArray[np.int32], chunks: int, term_count: int) -> Floats:
    """The score of each term in its chunk: higher for rare terms, lower for repetitions and in long chunks."""
    import numpy as np

    if not chunks:
        return counts
    having = np.bincount(terms, minlength=term_count)
    rarity = np.log(1 + (chunks - having + 0.5) / (having + 0.5))
    lengths = np.bincount(rows, counts, minlength=chunks)
    damping = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
    added: Floats = (rarity[terms] * counts / (damping[rows] + counts)).astype(np.float32)
    return added


# -- on disk ------------------------------------------------------------------------------------------


def save(matrix: Matrix, folder: Path) -> None:
    """Write a matrix to a folder, atomically."""
    import numpy as np

    temporary = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        for name in Matrix._fields:
            np.save(temporary / f"{name}.npy", getattr(matrix, name), allow_pickle=False)
        (temporary / "sums").write_text(_sums(temporary))
        shutil.rmtree(folder, ignore_errors=True)
        folder.unlink(missing_ok=True)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load(folder: Path) -> Matrix | None:
    """Map the matrix in a folder; None when it is missing, incomplete or damaged."""
    import numpy as np

    try:
        if (folder / "sums").read_text() != _sums(folder):
            return None
        arrays = [np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in Matrix._fields]
    except (OSError, ValueError, EOFError):
        return None
    return Matrix(*arrays)


def _sums(folder: Path) -> str:
    """Length and checksum of every file, computed at the speed of memory."""
    import numpy as np

    lines = []
    for name in Matrix._fields:
        content = np.memmap(folder / f"{name}.npy", np.uint8, "r")
        whole = len(content) // 8 * 8
        total = int(content[:whole].view("<u8").sum(dtype=np.uint64)) + int(content[whole:].sum())
        lines.append(f"{name} {len(content)} {total}\n")
    return "".join(lines)
