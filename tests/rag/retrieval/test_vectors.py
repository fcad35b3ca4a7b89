"""Search by vectors, and by words and vectors together."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError, EvalloomError
from evalloom.rag.retrieval import Index, fused, open_index

_MEANINGS = ("leave holiday off", "password login key", "forklift speed drive")


class Meanings:
    """An embedder with one number for each of three meanings, and one for none of them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def __call__(self, texts: list[str], /) -> list[list[float]]:
        self.asked.append(texts)
        found = [[float(sum(word in text for word in meaning.split())) for meaning in _MEANINGS] for text in texts]
        return [[*one, float(not any(one))] for one in found]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.md").write_text("annual leave")
    (root / "b.md").write_text("the password rules")
    (root / "c.md").write_text("forklift")
    made = open_index(root, tmp_path / "kept")
    made.refresh()
    return made


@pytest.mark.req("RAG-7")
def test_meaning_finds_what_words_do_not(index: Index) -> None:
    async def search() -> None:
        embedder = Meanings()
        assert await index.embed(embedder, "m") == 3
        assert index.search("holiday", 3) == []
        found = await index.search_dense("holiday", 2, embedder, "m")
        assert [one.source for one in found] == ["a.md", "c.md"]
        assert found[0].score == pytest.approx(1)
        hybrid = await index.search_hybrid("holiday password", 3, embedder, "m")
        assert hybrid[0].source == "b.md" and hybrid[0].score == pytest.approx(2 / 61)

    asyncio.run(search())


def test_vectors_are_made_once_also_those_of_queries(index: Index) -> None:
    async def search() -> None:
        embedder = Meanings()
        assert await index.embed(embedder, "m", queries=["off", "off", "key"]) == 5
        assert await index.embed(embedder, "m") == 0
        await index.search_dense("off", 1, embedder, "m")
        await index.search_dense("speed", 1, embedder, "m")
        await index.search_dense("speed", 1, embedder, "m")
        assert [len(texts) for texts in embedder.asked] == [5, 1]
        (index.root / "a.md").write_text("holiday")
        index.refresh()
        with pytest.raises(EvalloomError, match="vectors_missing"):
            await index.search_dense("off", 1, embedder, "m")
        assert await index.embed(embedder, "m") == 1

    asyncio.run(search())


def test_what_was_made_before_a_fault_is_kept(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("\n\n".join(f"# {number}\n\nword{number}" for number in range(500)))
    index = open_index(tmp_path / "docs", tmp_path / "kept")
    index.refresh()
    embedder = Meanings()

    async def failing(texts: list[str]) -> list[list[float]]:
        if len(embedder.asked) == 2:
            raise CallError("http_status", "no more")
        return await embedder(texts)

    with pytest.raises(CallError):
        asyncio.run(index.embed(failing, "m"))
    assert asyncio.run(index.embed(embedder, "m")) == 500 - 2 * 64


@pytest.mark.parametrize(
    "given",
    [
        [],
        [[1.0]],
        [[1.0], [1.0, 2.0], [1.0]],
        [[float("nan")]] * 3,
        None,
        [["x"]] * 3,
        [[]] * 3,
        [["1", "2"]] * 3,
        [[True, False]] * 3,
        [[0.0, 0.0]] * 3,
        [[1j, 1.0]] * 3,
    ],
)
def test_rubbish_from_an_embedder_is_an_error(index: Index, given: list[list[float]]) -> None:
    async def rubbish(texts: list[str]) -> list[list[float]]:
        return given

    with pytest.raises(CallError, match="bad_embeddings"):
        asyncio.run(index.embed(rubbish, "m"))


def test_damaged_vectors_are_made_again(index: Index, tmp_path: Path) -> None:
    asyncio.run(index.embed(Meanings(), "m"))
    index.close()
    (tmp_path / "kept/vectors.sqlite").write_bytes(b"garbage" * 1000)
    assert asyncio.run(index.embed(Meanings(), "m")) == 3


def test_very_large_and_very_small_numbers_are_vectors_too(index: Index) -> None:
    async def given(texts: list[str]) -> list[list[float]]:
        return [[1e300, 1e300] if "leave" in text else [1e-300, -1e-300] for text in texts]

    async def search() -> list[float]:
        await index.embed(given, "m")
        return [one.score or 0.0 for one in await index.search_dense("leave", 3, given, "m")]

    assert asyncio.run(search()) == pytest.approx([1, 0, 0])


def test_vectors_of_another_length_tell_the_way_out(index: Index, tmp_path: Path) -> None:
    async def shorter(texts: list[str]) -> list[list[float]]:
        return [[1.0]] * len(texts)

    asyncio.run(index.embed(Meanings(), "m"))
    with pytest.raises(CallError, match=r"of 4 numbers as before, got 1\. .*delete .*vectors\.sqlite.*another name"):
        asyncio.run(index.search_dense("other", 1, shorter, "m"))


def test_vectors_go_on_after_damage_and_one_that_is_not_whole_is_made_again(index: Index, tmp_path: Path) -> None:
    asyncio.run(index.embed(Meanings(), "m"))
    with closing(sqlite3.connect(tmp_path / "kept/vectors.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE vectors SET vector = x'00' WHERE text = (SELECT text FROM vectors LIMIT 1)")
    assert asyncio.run(index.embed(Meanings(), "m")) == 1
    with closing(sqlite3.connect(tmp_path / "kept/vectors.sqlite", isolation_level=None)) as db:
        db.execute("DROP TABLE vectors")
    with pytest.raises(EvalloomError, match="index_damaged"):
        asyncio.run(index.embed(Meanings(), "m"))
    assert asyncio.run(index.embed(Meanings(), "m")) == 3


def test_fusion_by_hand() -> None:
    names, scores = zip(*fused([["a", "b"], ["b", "c"]]), strict=True)
    assert names == ("b", "a", "c")
    assert scores == pytest.approx((1 / 62 + 1 / 61, 1 / 61, 1 / 62))
    assert fused([], 60) == []


@given(st.permutations(range(6)))
def test_fusing_a_ranking_with_itself_leaves_it(ranking: list[int]) -> None:
    assert [one for one, _ in fused([ranking, ranking])] == ranking
