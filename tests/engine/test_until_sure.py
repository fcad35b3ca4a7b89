"""`--until-sure`: when a batch stops, what it concludes, and what it says about itself (WORK-16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import evalloom
from evalloom.batchlog import manifest
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Run, Scored
from evalloom.engine.results import Results
from evalloom.engine.run import SelectedCase
from evalloom.engine.until_sure import Question, UntilSure

pytestmark = pytest.mark.req("WORK-16")

CASES = 400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = (json.dumps({"id": f"c{n}", "inputs": {"n": n}, "expected_output": 1}) for n in range(CASES))
    (tmp_path / "cases.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(target: Any, **options: Any) -> Results:
    return evalloom.evaluate("cases.jsonl", target, warn=lambda message: None, **options)


def good(n: int) -> int:
    return int(n % 50 != 0)


def bad(n: int) -> int:
    return int(n % 3 != 0)


def test_a_good_rate_is_sure_long_before_the_end_and_a_success() -> None:
    results = run(good, until_sure=True, fail_under=0.9)
    assert results.answer is not None
    assert results.answer.profiles[0].conclusion == "at_least"
    assert results.answer.started < CASES / 2
    assert results.summary.total == results.answer.started
    assert results.passed and not results.stopped


def test_a_bad_rate_is_sure_too_and_no_success() -> None:
    results = run(bad, until_sure=True, fail_under=0.9)
    assert results.answer is not None
    assert results.answer.profiles[0].conclusion == "below"
    assert results.answer.started < CASES / 2
    assert not results.passed


def test_a_baseline_is_compared_case_by_case() -> None:
    before = run(good)
    same = run(good, until_sure=True, against=before.path.name)
    worse = run(bad, until_sure=True, against=before.path.name)
    assert same.answer is not None and worse.answer is not None
    assert same.answer.profiles[0].conclusion == "not_worse"
    assert worse.answer.profiles[0].conclusion == "worse"
    assert same.passed and not worse.passed
    # The same cases fail as before: only a comparison by case is sure so soon.
    assert same.answer.started < CASES / 2


def test_without_a_bound_it_stops_when_the_rate_is_known_to_the_margin() -> None:
    results = run(bad, until_sure=True, margin=0.12)
    assert results.answer is not None
    assert results.answer.profiles[0].conclusion == "known"
    assert results.answer.started < CASES
    # Nothing was decided about success, so a failed case is a failure as ever.
    assert not results.passed


def test_an_open_question_is_neither_success_nor_failure() -> None:
    results = run(bad, until_sure=True, fail_under=0.68, limit=30)
    assert results.problem is not None
    assert results.problem.code == "not_sure"
    assert not results.passed
    assert results.answer is not None
    assert results.answer.started == 30


def test_all_profiles_have_to_be_decided(folder: Path) -> None:
    (folder / "evalloom.yaml").write_text("profiles:\n  a: {run: echo}\n  b: {run: echo}\n")
    results = run(good, until_sure=True, fail_under=0.9, profiles=["a", "b"])
    assert results.answer is not None
    assert [profile.conclusion for profile in results.answer.profiles] == ["at_least", "at_least"]


def test_repeats_of_a_case_count_as_one_case() -> None:
    results = run(good, until_sure=True, fail_under=0.9, repeat=3)
    assert results.answer is not None
    assert results.summary.total == 3 * results.answer.started
    assert results.answer.profiles[0].cases <= results.answer.started


def test_the_summary_has_the_interval_that_holds_after_stopping() -> None:
    results = run(good, until_sure=True, fail_under=0.9)
    assert results.answer is not None
    answer = results.answer.profiles[0]
    figures = results.summary.profiles["default"]
    assert (figures.pass_rate_low, figures.pass_rate_high) == (answer.low, answer.high)
    stored = manifest(results.path)
    assert stored.summary["until_sure"]["profiles"][0]["conclusion"] == "at_least"
    assert stored.finished_at


def test_a_resumed_batch_draws_the_same_order_and_runs_nothing_when_it_was_sure() -> None:
    first = run(good, until_sure=True, fail_under=0.9)
    second = run(good, until_sure=True, fail_under=0.9, resume=True)
    assert second.path == first.path
    assert second.summary.total == first.summary.total


def test_the_rest_can_be_run_afterwards() -> None:
    first = run(good, until_sure=True, fail_under=0.9)
    whole = run(good, resume=True)
    assert whole.path == first.path
    assert whole.summary.total == CASES


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 0.1}, "go with until_sure"),
        ({"until_sure": True, "margin": 0.0}, "--margin"),
        ({"until_sure": True, "against": "x", "fail_under": 0.9}, "got both"),
        ({"until_sure": True, "against": "nothing-there"}, "no baseline or batch"),
    ],
)
def test_what_cannot_be_decided_is_refused_before_a_call(options: dict[str, Any], words: str) -> None:
    calls: list[int] = []
    with pytest.raises(EvalloomError, match=words):
        run(calls.append, **options)
    assert not calls


def test_a_baseline_of_other_cases_is_refused(folder: Path) -> None:
    before = run(good, limit=10)
    (folder / "cases.jsonl").write_text('{"id": "other", "inputs": {"n": 1}, "expected_output": 1}\n')
    with pytest.raises(EvalloomError, match="no case of the dataset is in it"):
        run(good, until_sure=True, against=before.path.name)


def test_results_count_in_the_order_of_the_draw_and_not_of_their_end() -> None:
    """Slow cases that fail would otherwise be missing whenever it looks."""
    items = [SelectedCase(Case(f"c{n}", {}), number=n) for n in range(200)]
    follower = UntilSure(Question(threshold=0.9), ["p"], 1, None, {})
    order = list(follower.draw(items, "seed"))
    for item in order[1:]:
        follower.add(Run(f"k{item.number}", item.case.id, "p", number=item.number), Scored("", "passed"))
    assert follower.answer().profiles[0].cases == 0
    follower.add(Run("k", order[0].case.id, "p", number=order[0].number), Scored("", "failed"))
    assert follower.answer().profiles[0].cases > 0


def test_compare_says_that_a_batch_stopped_by_its_results() -> None:
    from evalloom import catalog
    from evalloom.engine.compare import ComparisonRequest, compare

    whole = run(good)
    sure = run(good, until_sure=True, fail_under=0.9)
    warnings: list[str] = []
    compare(ComparisonRequest(sure.path.name, whole.path.name), warnings.append, catalog.load())
    assert any("stopped_when_sure" in message for message in warnings)


def test_scoring_again_says_that_the_usual_intervals_do_not_hold() -> None:
    sure = run(good, until_sure=True, fail_under=0.9)
    warnings: list[str] = []
    evalloom.report(sure, "before.html", warn=warnings.append)
    assert warnings == []
    evalloom.score(sure, warn=warnings.append)
    evalloom.report(sure, "after.html", warn=warnings.append)
    assert len(warnings) == 2 and all("stopped_when_sure" in message for message in warnings)
