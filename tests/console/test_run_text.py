"""Runs on a terminal."""

from __future__ import annotations

from evalloom.console.case_text import case_lines
from evalloom.core.model import Run, Scored, Verdict


def test_a_failed_measure_without_a_reason_shows_its_score() -> None:
    verdicts = [
        Verdict(name="hit@5", kind="ranking", where="sources", status="failed", score=0.0),
        Verdict(name="mrr", kind="ranking", where="sources", status="passed", score=1.0),
    ]
    scored = Scored(key="k", status="failed", score=0.0, verdicts=verdicts)
    shown = [text for text, _ in case_lines(Run(key="k", case_id="a"), scored, None)]
    assert "      hit@5 failed: score 0" in shown and "      mrr passed: as expected" in shown
