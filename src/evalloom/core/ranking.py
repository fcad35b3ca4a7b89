"""What a retriever found, in order, and how good that order is: the measures of trec_eval, on sources.

A source counts once, at the place of its best passage. Relevance is binary: a source that meets an expected one.
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
    """A piece of a source as a retriever gives it; what the retriever does not tell stays empty."""

    source: str
    text: str = ""
    score: float | None = None
    line: int = 0
    """Where it begins in the source, counted from 1."""
    page: int = 0
    heading: str = ""
    start: int = 0
    end: int = 0
    """The place of the text in that of the whole document, in characters."""


def is_hit(expected: str, source: str) -> bool:
    """Whether a source is the expected file, also when written from further up, or lies in the expected folder."""
    wanted, given = _parts(expected), _parts(source)
    if not wanted or not given:
        return False
    if not expected.endswith(("/", "\\")):
        return given[-len(wanted) :] == wanted
    # An ancestor: the folder's parts stand together, before the last part of the source.
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted)))


# `a.md#L3`, `a.md#4.2-refunds`; not `C#.md` or `notes 1.2 #3.md`, whose `#` belongs to the name.
_SECTION = lazy_pattern(r"^(.*?\.\w+)#(?!.*\.(?:md|markdown|txt|rst|html?|pdf|docx?|json|csv|ya?ml)$).*$", re.DOTALL)


@lru_cache(maxsize=65536)
def _parts(path: str) -> tuple[str, ...]:
    """The parts of a path; a line or section behind the name of a file is none of them."""
    plain = unicodedata.normalize("NFC", path).replace("\\", "/")
    return tuple(part for part in _SECTION.sub(r"\1", plain).split("/") if part not in ("", "."))


def in_order(passages: Sequence[Passage]) -> list[Passage]:
    """Passages with equal scores in the order of trec_eval, by name downwards.

    Where scores do not fall from place to place, they are no scores of this ranking, and the order given counts.
    """
    scores = [one.score for one in passages if one.score is not None]
    if len(scores) != len(passages) or any(a < b for a, b in pairwise(scores)):
        return list(passages)
    tied = (sorted(same, key=lambda one: one.source, reverse=True) for _, same in groupby(passages, lambda p: p.score))
    return [one for same in tied for one in same]


def sources_in_order(passages: Sequence[Passage]) -> list[str]:
    """The distinct sources, each at the place of its best passage, however its path is written."""
    found: dict[tuple[str, ...], str] = {}
    for one in in_order(passages):
        found.setdefault(_parts(one.source) or (one.source,), one.source)
    return list(found.values())


class Ranked(Struct, frozen=True):
    """How a list of sources meets what is expected: for each expected source its rank from 1, or 0 where it is missing.

    `gains` are the ranks at which an expected source is met for the first time, `relevant` those of every source that
    meets one: of a folder there may be several.
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
        return sum(found / rank for found, rank in enumerate(self.gains, 1)) / self._most

    def ndcg(self, k: int) -> float:
        found = sum(1 / log2(rank + 1) for rank in self.gains if rank <= k)
        return found / sum(1 / log2(rank + 1) for rank in range(1, min(k, self._most) + 1))

    @property
    def _most(self) -> int:
        """How many gains there can be: expected sources that one and the same source meets are one."""
        return len(self.ranks) - sum(1 for _, rank in self.ranks if rank) + len(self.gains)


def rank(expected: Iterable[str], sources: Sequence[str]) -> Ranked:
    """Holds sources in their order against the expected ones, of which there must be at least one."""
    wanted = list({(*_parts(one), one.endswith(("/", "\\"))): one for one in expected}.values())
    ranks = dict.fromkeys(wanted, 0)
    gains, relevant = [], []
    for place, source in enumerate(sources, 1):
        met = [one for one in wanted if is_hit(one, source)]
        new = [one for one in met if not ranks[one]]
        ranks.update(dict.fromkeys(new, place))
        if new:
            gains.append(place)
        if met:
            relevant.append(place)
    return Ranked(tuple(ranks.items()), tuple(gains), tuple(relevant))


MEASURES: dict[str, Callable[[Ranked, int], float]] = {
    "hit": Ranked.hit,
    "recall": Ranked.recall,
    "precision": Ranked.precision,
    "ndcg": Ranked.ndcg,
    "mrr": lambda found, k: found.reciprocal_rank(),
    "map": lambda found, k: found.average_precision(),
}
_OF_ALL = ("mrr", "map")
"""Those that look at everything that was retrieved."""


def names_at(k: int) -> tuple[str, ...]:
    """The measures as reports name them: `hit@5`, …, `mrr`, `map`."""
    return tuple(name if name in _OF_ALL else f"{name}@{k}" for name in MEASURES)


def measure(found: Ranked, written: str) -> float:
    """The measure of a name such as `ndcg@5` or `mrr`. Raises ValueError where there is none such."""
    name, at, k = written.partition("@")
    if name not in MEASURES or bool(at) is (name in _OF_ALL) or (at and not (k.isdecimal() and int(k))):
        raise ValueError(written)
    return MEASURES[name](found, int(k or 0))


def measures(found: Ranked, k: int) -> dict[str, float]:
    """Every measure by its name."""
    return {name: measure(found, name) for name in names_at(k)}
