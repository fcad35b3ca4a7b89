"""Ranks retrieved sources and computes the measures of trec_eval.

A source counts once, at the rank of its best passage. Relevance is binary: a source matches an expected one or not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from math import log2

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern


class Passage(Struct, frozen=True, omit_defaults=True):
    """A retrieved piece of a source; fields that the retriever does not return stay empty."""

    source: str
    text: str = ""
    score: float | None = None
    line: int = 0
    """The first line in the source, counted from 1."""
    page: int = 0
    heading: str = ""
    start: int = 0
    end: int = 0
    """The offsets of the text in the document, in characters."""


def is_hit(expected: str, source: str) -> bool:
    """Whether a source is the expected file, possibly with a longer path, or is in the expected folder."""
    wanted, parts = _parts(expected), _parts(source)
    if not wanted or not parts:
        return False
    if not expected.endswith(("/", "\\")):
        return parts[-len(wanted) :] == wanted
    # A folder matches if its parts are consecutive parts of the source, before the last one.
    return any(parts[at : at + len(wanted)] == wanted for at in range(len(parts) - len(wanted)))


# `a.md#L3`, `a.md#4.2-refunds`; not `C#.md` or `notes 1.2 #3.md`, whose `#` belongs to the name.
_SECTION = lazy_pattern(r"^(.*?\.\w+)#(?!.*\.(?:md|markdown|txt|rst|html?|pdf|docx?|json|csv|ya?ml)$).*$", re.DOTALL)


def with_slashes(path: str) -> str:
    """Return a path with `/` for each backslash: how a path is read wherever it was written."""
    return path.replace("\\", "/")


def file_of(path: str) -> str:
    """Return the file or folder that an expected source names: with `/`, and without a line or section after it."""
    return _SECTION.sub(r"\1", with_slashes(path))


@lru_cache(maxsize=65536)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in file_of(unicodedata.normalize("NFC", path)).split("/") if part not in ("", "."))


def in_order(passages: Sequence[Passage]) -> list[Passage]:
    """Sort passages with equal scores as trec_eval does: by name, descending.

    If scores increase from one rank to the next, they are not the scores of this ranking, and the order stays.
    """
    scores = [passage.score for passage in passages if passage.score is not None]
    if len(scores) != len(passages) or any(a < b for a, b in pairwise(scores)):
        return list(passages)
    ties = (group for _, group in groupby(passages, lambda passage: passage.score))
    return [passage for tie in ties for passage in sorted(tie, key=lambda tied: tied.source, reverse=True)]


def sources_in_order(passages: Sequence[Passage]) -> list[str]:
    """Return the distinct sources, each at the rank of its best passage; spellings of one path are one source."""
    sources: dict[tuple[str, ...], str] = {}
    for passage in in_order(passages):
        sources.setdefault(_parts(passage.source) or (passage.source,), passage.source)
    return list(sources.values())


class Ranked(Struct, frozen=True):
    """The rank of each expected source in a list of sources, counted from 1; 0 if it is missing.

    `gains` are the ranks that match an expected source for the first time, `relevant` the ranks of all sources that
    match one: several may match an expected folder.
    """

    ranks: tuple[tuple[str, int], ...]
    gains: tuple[int, ...]
    relevant: tuple[int, ...]

    def hit(self, k: int) -> float:
        return float(any(rank <= k for rank in self.gains))

    def recall(self, k: int) -> float:
        return sum(0 < rank <= k for _, rank in self.ranks) / len(self.ranks)

    def precision(self, k: int) -> float:
        return sum(rank <= k for rank in self.relevant) / k

    def reciprocal_rank(self) -> float:
        return 1 / self.gains[0] if self.gains else 0.0

    def average_precision(self) -> float:
        return sum(hits / rank for hits, rank in enumerate(self.gains, 1)) / self._max_gains

    def ndcg(self, k: int) -> float:
        gain = sum(1 / log2(rank + 1) for rank in self.gains if rank <= k)
        return gain / sum(1 / log2(rank + 1) for rank in range(1, min(k, self._max_gains) + 1))

    @property
    def _max_gains(self) -> int:
        """The highest possible number of gains: expected sources that the same source matches count once."""
        return len(self.ranks) - sum(1 for _, rank in self.ranks if rank) + len(self.gains)


def rank(expected: Iterable[str], sources: Sequence[str]) -> Ranked:
    """Compare ranked sources with the expected ones; at least one must be expected."""
    wanted = list({(*_parts(path), path.endswith(("/", "\\"))): path for path in expected}.values())
    ranks = dict.fromkeys(wanted, 0)
    gains, relevant = [], []
    for place, source in enumerate(sources, 1):
        matched = [path for path in wanted if is_hit(path, source)]
        new = [path for path in matched if not ranks[path]]
        ranks.update(dict.fromkeys(new, place))
        if new:
            gains.append(place)
        if matched:
            relevant.append(place)
    return Ranked(tuple(ranks.items()), tuple(gains), tuple(relevant))


MEASURES: dict[str, Callable[[Ranked, int], float]] = {
    "hit": Ranked.hit,
    "recall": Ranked.recall,
    "precision": Ranked.precision,
    "ndcg": Ranked.ndcg,
    "mrr": lambda ranked, k: ranked.reciprocal_rank(),
    "map": lambda ranked, k: ranked.average_precision(),
}
_WITHOUT_CUTOFF = ("mrr", "map")
"""The measures without a cutoff: they use all retrieved sources."""


def names_at(k: int) -> tuple[str, ...]:
    """Return the names of all measures: `hit@5`, …, `mrr`, `map`."""
    return tuple(name if name in _WITHOUT_CUTOFF else f"{name}@{k}" for name in MEASURES)


def measure(ranked: Ranked, written: str) -> float:
    """Compute the measure of a name such as `ndcg@5` or `mrr`. Raises ValueError if it is unknown."""
    name, at, k = written.partition("@")
    if name not in MEASURES or bool(at) is (name in _WITHOUT_CUTOFF) or (at and not (k.isdecimal() and int(k))):
        raise ValueError(written)
    return MEASURES[name](ranked, int(k or 0))


def measures(ranked: Ranked, k: int) -> dict[str, float]:
    """Compute all measures by name."""
    return {name: measure(ranked, name) for name in names_at(k)}
