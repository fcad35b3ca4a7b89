"""Ranked sources and their measures, against values worked out by hand and the laws that hold for all of them."""

from math import isclose, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.ranking import Passage, is_hit, measure, measures, names_at, rank, sources_in_order


@pytest.mark.req("RAG-7")
@pytest.mark.parametrize(
    ("expected", "source", "hits"),
    [
        ("docs/a.md", "docs/a.md", True),
        ("a.md", "docs/a.md", True),
        ("docs/a.md", "/srv/docs/a.md", True),
        ("docs/a.md", "C:\\srv\\docs\\a.md", True),
        ("a.md", "docs/ba.md", False),  # a suffix, but not on a boundary of the path
        ("docs/a.md", "a.md", False),
        ("docs/", "docs/sub/a.md", True),
        ("docs/", "root/docs/a.md", True),
        ("doc/", "docs/a.md", False),
        ("docs/", "docs", False),  # a file of that name is not inside it
        ("docs", "docs/a.md", False),  # without the slash it is a file
        ("./docs/a.md", "docs/a.md#L3", True),
        ("C#.md", "docs/C#.md", True),
        ("C#.md", "docs/C#.txt", False),
        ("notes 1.2 #3.md", "notes 1.2 #4.md", False),
        ("a.md", "docs/a.md#4.2-refunds", True),
        ("library/os.html", "library/os.html#os.walk", True),
        ("leave.md", "leave.md#a/b", True),
        ("caf\u00e9.md", "docs/cafe\u0301.md", True),
        ("", "docs/a.md", False),
    ],
)
def test_an_expected_file_is_a_suffix_and_an_expected_folder_an_ancestor(
    expected: str, source: str, hits: bool
) -> None:
    assert is_hit(expected, source) is hits


def test_a_source_counts_once_and_ties_go_by_name_downwards() -> None:
    passages = [Passage("a", score=2), Passage("b", score=2), Passage("a", score=1), Passage("c", score=1)]
    assert sources_in_order(passages) == ["b", "a", "c"]
    assert sources_in_order([Passage("a"), Passage("b"), Passage("a")]) == ["a", "b"]
    # Distances rise: they are no scores, and the order given counts.
    assert sources_in_order([Passage("a", score=0.1), Passage("b", score=0.1), Passage("c", score=0.7)]) == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.req("RAG-7")
def test_every_measure_by_hand() -> None:
    # Expected: x, y, z. Found: n, x, n, y, n, z, so at the ranks 2, 4 and 6.
    found = rank(["x", "y", "z"], ["n1", "x", "n2", "y", "n3", "z"])
    assert found.ranks == (("x", 2), ("y", 4), ("z", 6))
    at_5 = measures(found, 5)
    assert at_5["hit@5"] == 1
    assert isclose(at_5["recall@5"], 2 / 3)
    assert isclose(at_5["precision@5"], 2 / 5)
    assert isclose(at_5["mrr"], 1 / 2)
    assert isclose(at_5["map"], (1 / 2 + 2 / 4 + 3 / 6) / 3)
    ideal = 1 / log2(2) + 1 / log2(3) + 1 / log2(4)
    assert isclose(at_5["ndcg@5"], (1 / log2(3) + 1 / log2(5)) / ideal)
    assert measures(found, 1)["hit@1"] == 0
    # With fewer sources than k, trec_eval still divides by k.
    assert isclose(measures(rank(["x"], ["x"]), 5)["precision@5"], 1 / 5)


def test_of_a_folder_the_first_file_is_the_gain_and_every_file_is_relevant() -> None:
    found = rank(["docs/", "docs/"], ["docs/a", "docs/b", "c"])
    assert found.ranks == (("docs/", 1),)
    assert (found.gains, found.relevant) == ((1,), (1, 2))
    assert measures(found, 2) == {"hit@2": 1, "recall@2": 1, "precision@2": 1, "ndcg@2": 1, "mrr": 1, "map": 1}


def test_one_source_that_meets_two_expected_ones_is_all_that_can_be_found() -> None:
    for expected in (["docs/", "docs/a.md"], ["a.md", "docs/a.md"]):
        found = measures(rank(expected, ["docs/a.md", "docs/b.md"]), 5)
        assert (found["recall@5"], found["ndcg@5"], found["map"]) == (1, 1, 1)
    # The third is missing: one gain of two that there could be.
    assert measures(rank(["docs/", "docs/a.md", "z.md"], ["docs/a.md"]), 5)["map"] == 0.5


def test_one_file_takes_one_place_however_it_is_written() -> None:
    names = ["d/a.md#L1", "d/a.md#L50", "./d/a.md", "d\\a.md", "d/b.md"]
    assert sources_in_order([Passage(name) for name in names]) == ["d/a.md#L1", "d/b.md"]


def test_nothing_found_is_zero_in_every_measure() -> None:
    assert set(measures(rank(["x"], []), 3).values()) == {0.0}


@pytest.mark.parametrize("written", ["hit", "hit@0", "hit@x", "mrr@5", "", "@5", "hit@-1", "foo@5"])
def test_a_measure_that_there_is_not(written: str) -> None:
    with pytest.raises(ValueError):
        measure(rank(["x"], ["x"]), written)


_NAMES = st.sampled_from(["a", "b", "docs/a", "docs/b", "docs/", "x/docs/a", "c.md", "y/c.md"])


@given(st.lists(_NAMES, min_size=1, max_size=5), st.lists(_NAMES, max_size=8, unique=True), st.integers(1, 10))
def test_every_measure_lies_between_0_and_1_and_hits_agree(expected: list[str], found: list[str], k: int) -> None:
    values = measures(rank(expected, found), k)
    assert tuple(values) == names_at(k)
    assert all(0 <= value <= 1 for value in values.values())
    assert (values[f"hit@{k}"] > 0) == (values[f"recall@{k}"] > 0) == (values[f"ndcg@{k}"] > 0)
    if k >= len(found):
        assert (values["mrr"] > 0) == (values["map"] > 0) == (values[f"hit@{k}"] > 0)
