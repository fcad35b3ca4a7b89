"""Sources and passages."""

from typing import Any

import pytest

from evalloom.matchers import Grade, Seen, by_kind
from evalloom.matchers.sources import is_hit
from evalloom.model import Case, Check, Output


def grade(kind: str, expected: Any, value: Any, **options: Any) -> Grade:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), Seen(value, Output(value), Case("c", {})))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("expected", "source", "hits"),
    [
        ("docs/a.md", "docs/a.md", True),
        ("a.md", "docs/a.md", True),
        ("docs/a.md", "/srv/docs/a.md", True),
        ("docs/a.md", "C:\\srv\\docs\\a.md", True),
        ("a.md", "docs/ba.md", False),
        ("docs/a.md", "a.md", False),
        ("docs/", "docs/sub/a.md", True),
        ("docs/", "root/docs/a.md", True),
        ("doc/", "docs/a.md", False),
        ("./docs/a.md", "docs/a.md#L3", True),
        ("", "docs/a.md", False),
    ],
)
def test_hits(expected: str, source: str, hits: bool) -> None:
    assert is_hit(expected, source) is hits


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
