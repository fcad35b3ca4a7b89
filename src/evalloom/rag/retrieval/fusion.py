"""Fuses several rankings into one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def fused(rankings: Sequence[Sequence[T]], constant: int = 60) -> list[tuple[T, float]]:
    """Reciprocal-rank fusion: the sum of 1 / (constant + rank) over the rankings, the best first.

    Equal sums keep the order of the earlier ranking.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1 / (constant + rank)
    return sorted(scores.items(), key=lambda item: -item[1])
