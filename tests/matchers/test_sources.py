"""Sources and passages."""

from typing import Any

import pytest

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind


def grade(kind: str, expected: Any, value: Any, sources: list[Any] | None = None, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    seen = MatchContext(value, Output(value, sources=sources or []), Case("c", {}))
    found = matcher.grade(Check(kind, expected, options=options), seen)
    assert found is not None
    return found


def test_source_hit() -> None:
    sources = ["x/a.md", {"path": "x/b.md", "text": "…"}, {"metadata": {"source": "y/c.md"}}]
    assert grade("source_hit", ["zzz.md", "b.md"], sources).passed
    assert grade("source_hit", ["zzz.md", "b.md"], sources, all=True).passed is False
    assert grade("source_hit", ["a.md", "c.md"], sources, all=True).score == 1
    assert grade("source_hit", ["c.md"], sources, top_k=2).passed is False
    missing = grade("source_hit", ["zzz.md"], [])
    assert missing.passed is False and "zzz.md" in missing.reason
    assert grade("source_hit", [], sources).passed is None
    assert grade("source_hit", [7], [{"id": 7}]).passed


def test_context_recall() -> None:
    sources = [{"text": "Emma is a novel\nby Jane Austen."}, "It is from 1815."]
    assert grade("context_recall", ["a novel by Jane"], sources).passed
    half = grade("context_recall", ["from 1815", "about Mars"], sources)
    assert half.passed is False and half.score == 0.5 and "about Mars" in half.reason
    assert grade("context_recall", ["from 1815", "about Mars"], sources, threshold=0.5).passed


@pytest.mark.req("RAG-7")
def test_ranking() -> None:
    sources = [{"source": "x/a.md", "score": 3.0}, {"source": "x/a.md", "score": 2}, {"source": "y/b.md", "score": 1}]
    second = grade("ranking", ["b.md"], sources, measure="mrr")
    assert (second.passed, second.score) == (True, 0.5)
    assert "'b.md' at 2" in second.reason
    assert grade("ranking", ["b.md"], sources, measure="hit@1").passed is False
    assert grade("ranking", ["b.md"], sources, measure="mrr", threshold=0.9).passed is False
    missed = grade("ranking", ["c.md"], sources, measure="hit@5")
    assert missed.score == 0 and 'missing ["c.md"]' in missed.reason and "x/a.md" in missed.reason
    # Beside the one that decides the others only count.
    reason = "no expected source is among the 2 sources found"
    assert grade("ranking", ["c.md"], sources, measure="recall@5", weight=0).reason == reason
    for options in ({"measure": "hit"}, {"measure": 7}, {"measure": "mrr", "threshold": "high"}):
        assert grade("ranking", ["b.md"], sources, **options).passed is None
    assert grade("ranking", [], sources).passed is None


@pytest.mark.req("RAG-8")
@pytest.mark.parametrize(
    ("answer", "passed", "score", "said"),
    [
        ("Ten days [1].", True, 1.0, "cites [1]"),
        ("Ten days [1, 2] and 【3】.", True, 1.0, "cites [1], [2], [3]"),
        ("All of them [1-3].", True, 1.0, "cites [1], [2], [3]"),
        ("Ten days [1], by law [9].", False, 0.5, "cites [9], and there are the sources [1] to [3]"),
        ("[0]", False, 0.0, "cites [0]"),
        ("Ten days.", False, 0.0, "cites no source"),
        ("In [2024] it was so.", False, 0.0, "cites no source"),
        ("十天［１］，另见【2†来源】。", True, 1.0, "cites [1], [2]"),
        ("See [1 and 3] or [3~2].", True, 1.0, "cites [1], [3], [2]"),
        ("Use `args[1]`, and ![3](a.png).", False, 0.0, "cites no source"),
    ],
)
def test_citations_name_the_sources_by_number(answer: str, passed: bool, score: float, said: str) -> None:
    found = grade("citations", None, answer, ["a", "b", "c"])
    assert (found.passed, found.score) == (passed, score)
    assert said in found.reason


def test_citations_without_sources_cannot_be_held_against_any() -> None:
    assert grade("citations", None, "Ten days [1].").passed is None
