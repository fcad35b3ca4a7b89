"""Choosing the best scores."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval.bm25 import best


@given(st.lists(st.integers(-1, 4), max_size=200), st.integers(1, 50))
def test_the_best_are_those_of_a_full_sort_also_where_scores_are_equal(scores: list[int], k: int) -> None:
    wanted = sorted((row for row, score in enumerate(scores) if score > 0), key=lambda row: -scores[row])
    assert best(np.array(scores, np.float32), k) == wanted[:k]
