"""What forbids a comparison, what is only told, and which documents changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare_config import conflicts, differences
from evalloom.analysis.compare_documents import ChangedSources, DocumentChanges, document_changes
from evalloom.core.model import Batch, Profile

pytestmark = pytest.mark.req("RAG-10")

CONFIG = {"kind": "rag", "purpose": "retrieve", "k": 5, "mode": "bm25", "embeddings": ""}
DOCUMENTS = {"docs/a.md": "1", "docs/b.md": "1", "docs/c.md": "1"}


def batch(config: Any = CONFIG, documents: Any = DOCUMENTS, **more: Any) -> Batch:
    facts: dict[str, Any] = {"profiles": [Profile("p", run="one")], "models": {"one": "m-1"}, "target": "rag"}
    return Batch("b", "", **{**facts, **more}, config=config, documents=documents)


@pytest.mark.parametrize(
    ("config", "texts"),
    [
        (CONFIG, []),
        (dict(reversed(CONFIG.items())), []),
        ({**CONFIG, "k": 10, "mode": "hybrid"}, ["k: 5 → 10", "mode: bm25 → hybrid"]),
        ({**CONFIG, "k": "5"}, ["k: 5 → '5'"]),
        ({**CONFIG, "embeddings": "minilm"}, ["embeddings: none → minilm"]),
        ({**CONFIG, "fusion": {"rrf": {"k": 60}, "of": [1]}}, ["fusion.rrf.k only now: 60", "fusion.of only now: [1]"]),
        ({"kind": "rag", "purpose": "retrieve", "k": 5}, ["mode only before: bm25", "embeddings only before: none"]),
        ({}, ["kind only before: rag", "purpose only before: retrieve", "k only before: 5", "mode only before: bm25",
              "embeddings only before: none"]),
    ],
)  # fmt: skip
def test_every_other_setting_is_a_conflict_and_a_difference(config: dict[str, Any], texts: list[str]) -> None:
    base, now = batch(), batch(config)
    assert [one.text for one in conflicts(base, now, [("p", "p")], llm_answers=False)] == texts
    assert differences(base, now, [("p", "p")]) == conflicts(base, now, [("p", "p")], llm_answers=False)
    assert len(conflicts(now, base, [("p", "p")], llm_answers=False)) == len(texts)


@pytest.mark.parametrize(("llm_answers", "number"), [(False, 0), (True, 2)])
def test_another_llm_is_a_conflict_only_where_it_answers(llm_answers: bool, number: int) -> None:
    base = batch(params={"p": {"temperature": 0}})
    now = batch(params={"p": {"temperature": 1}}, models={"one": "m-2"})
    assert len(conflicts(base, now, [("p", "p")], llm_answers)) == number
    assert [one.what for one in differences(base, now, [("p", "p")])] == ["profiles.p.model", "profiles.p.params"]
    renamed = batch(profiles=[Profile("q", run="one")], params={"q": {"temperature": 0}})
    assert conflicts(base, renamed, [("q", "p")], llm_answers) == []


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        (DOCUMENTS, ""),
        ({}, ""),
        ({**DOCUMENTS, "docs/b.md": "2"}, "documents: 1 changed (docs/b.md)"),
        ({"docs/a.md": "2", "docs/d.md": "1"}, "documents: 1 changed (docs/a.md), 1 added (docs/d.md), 2 removed (docs/b.md, docs/c.md)"),
        ({**DOCUMENTS, **{f"e{number}": "1" for number in range(5)}}, "documents: 5 added (e0, e1, e2 and 2 more)"),
        ({"": "1"}, "the documents changed"),
    ],
)  # fmt: skip
def test_documents_are_told_and_never_a_conflict(documents: dict[str, str], text: str) -> None:
    base, now = batch(), batch(documents=documents, target_digest="another" if text else "")
    assert conflicts(base, now, [("p", "p")], llm_answers=False) == []
    assert [one.text for one in differences(base, now, [("p", "p")])] == ([text] if text else [])


def test_a_difference_holds_the_documents_that_it_is_about() -> None:
    [found] = differences(batch(), batch(documents={"docs/a.md": "2", "docs/b.md": "1", "d": "1"}), [("p", "p")])
    assert (found.what, found.before, found.now) == (
        "documents", {"docs/a.md": "1", "docs/c.md": "1"}, {"docs/a.md": "2", "d": "1"},
    )  # fmt: skip


MANY = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"))


@given(MANY, MANY)
def test_swapping_the_sides_turns_added_into_removed(one: dict[str, str], other: dict[str, str]) -> None:
    there, back = document_changes(batch({}, one), batch({}, other)), document_changes(batch({}, other), batch({}, one))
    assert (there is None) == (back is None)
    if there and back:
        assert (there.changed, there.added, there.removed) == (back.changed, back.removed, back.added)


def test_a_case_knows_which_of_its_sources_changed() -> None:
    sources = ChangedSources(
        DocumentChanges(("docs/zh/leave.md", "docs/zh/pay.md"), ("docs/new.md",), ("docs/old.md",))
    )
    assert sources.notes(["zh/leave.md"]) == ("docs/zh/leave.md changed since the baseline",)
    assert sources.notes(["docs/old.md", "docs/new.md"]) == ("docs/old.md was removed since the baseline",)
    assert sources.notes(["docs/"])[-1] == "docs/old.md was removed since the baseline"
    assert sources.notes(["docs/zh/"]) == sources.notes(["docs/zh/", "leave.md"]) and sources.notes([]) == ()
    many = ChangedSources(DocumentChanges(tuple(f"docs/{number}.md" for number in range(9))))
    assert many.notes(["docs/"])[2:] == ("docs/2.md changed since the baseline", "and 6 more of its sources changed")
