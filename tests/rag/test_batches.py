"""What RAG batches have beyond others, and how the catalog knows them."""

from __future__ import annotations

import pytest

from evalloom import catalog
from evalloom.core.model import Output, Run, Scored, Verdict
from evalloom.rag.batches import BATCH_KIND, earlier_rank, rank_of_first

pytestmark = pytest.mark.req("RAG-10")


@pytest.mark.parametrize(
    ("measures", "rank"), [((), 0), ((("mrr", 0.0),), 0), ((("mrr", 1 / 3),), 3), ((("mrr", 0.75),), 0)]
)
def test_the_reciprocal_rank_tells_the_rank(measures: tuple[tuple[str, float], ...], rank: int) -> None:
    assert rank_of_first(measures) == rank


def test_a_lost_case_gets_a_note_only_where_its_rank_is_known() -> None:
    assert earlier_rank((("mrr", 0.5),)) == "an expected source was at rank 2 before"
    assert earlier_rank(()) == earlier_rank((("mrr", 0.75),)) == ""


@pytest.mark.parametrize(("purpose", "answers"), [("retrieve", False), ("answer", True), (None, False)])
def test_an_llm_answers_by_the_purpose(purpose: str | None, answers: bool) -> None:
    assert BATCH_KIND.llm_answers({"kind": "rag", "purpose": purpose}) is answers


def test_the_catalog_knows_rag_batches_by_their_kind() -> None:
    known = catalog.load()
    assert known.batch_kind({"kind": "rag"}) is BATCH_KIND
    assert known.batch_kind({}) is None and known.batch_kind({"kind": "other"}) is None
    assert known.buckets == ("official", "oral", "ambiguous")


def test_a_reason_names_what_was_found_instead_unless_the_run_met_an_error() -> None:
    missed = Scored("1", "failed", 0.0, [Verdict("hit@5", "ranking", "sources", "failed", 0.0)])
    sources = ["a", {"source": "b"}, "a", "c", "d", {"source": None}]
    run = Run("1", "c", "p", output=Output(sources=sources), raw={"expected_sources": ["x", 5, "x"]})
    assert BATCH_KIND.failure_reason(run, missed) == "expected x, found a, b, c and 1 more"
    assert BATCH_KIND.expected_documents(run) == ["x"]
    assert BATCH_KIND.failure_reason(Run("1", "c", "p", error="timeout"), missed) == ""
    assert BATCH_KIND.failure_reason(run, Scored("1", "failed", 0.0)) == ""
