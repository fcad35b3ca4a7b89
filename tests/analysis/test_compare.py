"""Comparer results: what is gained and lost, how bad it is, and how sure."""

from __future__ import annotations

import random
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.compare import CaseResult, Comparer, Comparison, ComparisonRules
from evalloom.analysis.compare_config import differences
from evalloom.analysis.compare_figures import FEWEST_FLIPS, Sums, corrected, drop_grade, medians, paired_mean_interval
from evalloom.analysis.compare_rule import conclude
from evalloom.analysis.statistics import mcnemar_exact, paired_difference, percentile
from evalloom.core.model import Batch, DatasetFacts, Profile

pytestmark = pytest.mark.req("PIPE-17")

SHARES = {"passed": 1.0, "failed": 0.0, "error": 0.0}
SIDES = (("passed", 2), ("failed", 3))


def case(id: str, status: Any = "passed", repeats: int = 1, **more: Any) -> CaseResult:
    share = more.pop("share", SHARES.get(status))
    more |= {"passed": round((share or 0) * repeats), "repeats": 0 if share is None else repeats}
    return CaseResult(id, more.pop("occurrence", 1), status, share, **more)


def compared(
    before: list[CaseResult],
    now: list[CaseResult],
    drop: float | None = None,
    by_tag: bool = False,
    strict: bool = True,
) -> Comparison:
    """Compare by the strict rule, under which each drop shows, unless it is turned off."""
    rules = ComparisonRules(drop, by=("tag",) if by_tag else (), is_strict=strict)
    return concluded(before, now, rules)


def concluded(before: list[CaseResult], now: list[CaseResult], rules: ComparisonRules) -> Comparison:
    comparing = Comparer("p", "p", rules)
    for one in before:
        comparing.add_before(one)
    for one in now:
        comparing.add(one)
    [comparison] = conclude([comparing.result()], rules)
    return comparison


@st.composite
def results(draw: st.DrawFn) -> list[CaseResult]:
    ids = draw(st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1))
    statuses = st.sampled_from(["passed", "failed", "error", "skipped", "blocked", "unscored"])
    tags = st.sampled_from([(), ("critical",), ("zh",), ("zh", "en")])
    found = []
    for id in ids:
        status = draw(statuses)
        share = draw(st.sampled_from([0.0, 1 / 3, 2 / 3])) if status == "failed" else SHARES.get(status)
        found.append(case(id, status, share=share, score=draw(st.none() | st.floats(0, 1)), tags=draw(tags)))
    return found


@given(results(), st.floats(0, 1), st.booleans())
def test_nothing_is_worse_than_itself(cases: list[CaseResult], drop: float, by_tag: bool) -> None:
    found = compared(cases, cases, drop, by_tag)
    assert found.is_comparable and not found.missing
    assert not found.is_regression and found.severity == "" and found.figures.difference in (0.0, None)
    assert found.counts["gained"] == found.counts["lost"] == found.counts["new"] == found.counts["gone"] == 0
    assert found.figures.judgement == "no difference shown"


@given(results(), results())
def test_swapping_the_sides_turns_everything_round(before: list[CaseResult], now: list[CaseResult]) -> None:
    one, other = compared(before, now).figures, compared(now, before).figures
    assert (one.gained, one.lost, one.p_value) == (other.lost, other.gained, other.p_value)
    if one.difference is not None and one.low is not None and one.high is not None:
        assert other.difference == -one.difference and (other.low, other.high) == pytest.approx((-one.high, -one.low))
        assert one.low <= one.difference <= one.high


@given(results(), results(), st.floats(0, 1), st.floats(0, 1))
def test_allowing_more_never_adds_a_regression(
    before: list[CaseResult], now: list[CaseResult], drop: float, more: float
) -> None:
    strict, mild = (compared(before, now, limit, by_tag=True) for limit in sorted((drop, more)))
    assert strict.is_regression or not mild.is_regression
    assert sum(bool(one.severity) for one in mild.changes) <= sum(bool(one.severity) for one in strict.changes)


@given(results(), results())
def test_every_case_is_counted_once(before: list[CaseResult], now: list[CaseResult]) -> None:
    found = compared(before, now)
    assert sum(found.counts.values()) == len({one.case_id for one in before + now})
    assert found.figures.cases == sum(found.counts[kind] for kind in ("gained", "lost", "same"))


@pytest.mark.parametrize(
    ("before", "now", "kind", "severity"),
    [
        (case("a", "passed"), case("a", "failed"), "lost", "major"),
        (case("a", "passed"), case("a", "error"), "lost", "critical"),
        (case("a", "passed"), case("a", "failed", tags=("critical",)), "lost", "critical"),
        (case("a", "passed", tags=("critical",)), case("a", "failed"), "lost", "critical"),
        (case("a", "passed"), case("a", "failed", share=0.5), "lost", "minor"),
        (case("a", "passed"), case("a", "failed", share=0.5, tags=("critical",)), "lost", "critical"),
        (case("a", "failed", share=0.5), case("a", "failed"), "lost", "minor"),
        (case("a", "failed", share=0.5), case("a", "failed", tags=("critical",)), "lost", "minor"),
        (case("a", "passed"), case("a", "blocked"), "not comparable", "major"),
        (case("a", "passed", tags=("critical",)), case("a", "blocked"), "not comparable", "critical"),
        (case("a", "passed", tags=("critical",)), case("a", "skipped"), "not comparable", "critical"),
        (case("a", "passed"), case("a", "unscored", tags=("critical",)), "not comparable", "critical"),
        (case("a", "failed", tags=("critical",)), case("a", "skipped"), "not comparable", ""),
        (case("a", "passed"), case("a", "unscored"), "not comparable", ""),
        (case("a", "passed"), case("a", "skipped"), "not comparable", ""),
        (case("a", "skipped"), case("a", "failed"), "not comparable", ""),
        (case("a", "passed", score=0.9), case("a", "passed", score=0.8), "same", "minor"),
        (case("a", "failed"), case("a", "error"), "same", "minor"),
        (case("a", "failed"), case("a", "passed"), "gained", ""),
    ],
)  # fmt: skip
def test_severity_of_a_case(before: CaseResult, now: CaseResult, kind: str, severity: str) -> None:
    [change] = compared([before], [now]).changes
    assert (change.change, change.severity) == (kind, severity)
    assert (change.before, change.now) == (before.status, now.status)


def test_a_score_may_fall_by_what_is_allowed() -> None:
    before, now = [case("a", score=0.9)], [case("a", score=0.88)]
    assert compared(before, now, drop=0.02).changes == []
    assert compared(before, now, drop=0.019).changes[0].severity == "minor"
    assert not compared(before, now).is_regression


def test_cases_on_one_side_are_listed_and_change_no_rate() -> None:
    found = compared([case("a"), case("b"), case("b", "failed", occurrence=2)], [case("a"), case("c", "failed")])
    assert [(one.case_id, one.occurrence, one.change) for one in found.changes] == [
        ("c", 1, "new"),
        ("b", 1, "gone"),
        ("b", 2, "gone"),
    ]
    assert (found.figures.cases, found.figures.rate, found.is_regression) == (1, 1.0, False)


def test_a_critical_case_that_is_gone_is_a_loss_unless_others_were_chosen() -> None:
    before = [case("a", tags=("critical",)), case("b"), case("c"), case("d", "failed", tags=("critical",))]
    found = compared(before, [case("b"), case("c")], drop=1)
    assert found.is_regression and [(one.case_id, one.severity) for one in found.changes] == [
        ("a", "critical"),
        ("d", ""),
    ]
    found = concluded(before, [case("b")], ComparisonRules(is_selection=True, is_strict=True))
    assert (found.is_regression, found.is_comparable, found.missing, found.counted_before) == (False, True, 3, 4)


@pytest.mark.parametrize("now", ["skipped", "unscored", "blocked", "gone"])
def test_what_rests_on_less_than_half_of_what_passed_says_so(now: str) -> None:
    before = [case(str(number)) for number in range(20)] + [case("x", "failed"), case("y", "skipped")]

    def found(missing: int) -> Comparison:
        kept = [one if int(one.case_id) >= missing else case(one.case_id, now) for one in before[:20]]
        return compared(before, kept[missing if now == "gone" else 0 :] + before[20:])

    assert (found(19).is_comparable, found(19).missing, found(19).counted_before) == (False, 19, 21)
    assert found(10).is_comparable and not found(11).is_comparable and found(0).missing == 0


def test_an_edited_case_is_counted_only_where_it_is_compared() -> None:
    found = compared(
        [case("a", digest="1"), case("b", digest="1")], [case("a", digest="2"), case("b", "skipped", digest="2")]
    )
    assert found.edited == 1 and [one.is_edited for one in found.changes] == [True, True]


def test_an_edited_case_is_compared_and_marked() -> None:
    before = [case("a", digest="1"), case("b", digest="1"), case("c", digest="1")]
    found = compared(before, [case("a", digest="2"), case("b", "failed", digest="2"), case("c", digest="1")])
    assert [(one.case_id, one.change, one.is_edited) for one in found.changes] == [
        ("a", "same", True),
        ("b", "lost", True),
    ]
    assert found.edited == 2 and found.figures.cases == 3


@pytest.mark.parametrize(
    ("drop", "allowed", "grade"),
    [(0.0, 0, ""), (0.02, 0.02, ""), (0.021, 0.02, "minor"), (0.05, 0, "minor"), (0.1, 0, "major"), (0.15, 0.02, "major"),
     (0.16, 0, "critical"), (0.16, 0.2, ""), (-0.5, 0, ""), (0.9 - 0.88, 0.02, "")],
)  # fmt: skip
def test_grade_of_a_drop(drop: float, allowed: float, grade: str) -> None:
    assert drop_grade(-drop, allowed) == grade


def test_a_tag_may_fall_while_the_whole_does_not() -> None:
    before = [case("a", tags=("zh",)), case("b", "failed", tags=("en",))]
    now = [case("a", "failed", tags=("zh",)), case("b", tags=("en",))]
    assert not compared(before, now).is_regression
    found = compared(before, now, by_tag=True)
    assert found.is_regression and {one.name: one.regression for one in found.tags} == {"en": "", "zh": "critical"}


def test_a_critical_case_is_a_regression_whatever_is_allowed() -> None:
    before = [case(str(number)) for number in range(100)]
    now = [case("0", "failed", tags=("critical",)), *before[1:]]
    assert compared(before, now, drop=1).is_regression
    assert not compared(before, [case("0", "failed"), *before[1:]], drop=1).is_regression


def test_the_judgement_needs_both_the_interval_and_the_exact_test() -> None:
    def judged(lost: int, cases: int = 20) -> str:
        before = [case(str(number)) for number in range(cases)]
        return compared(
            before, [case(str(n), "failed" if n < lost else "passed") for n in range(cases)]
        ).figures.judgement

    assert [judged(number) for number in (0, 5, 6)] == ["no difference shown", "no difference shown", "worse"]
    assert judged(6, 6) == "worse" and judged(5, 5) == "no difference shown"
    assert mcnemar_exact(0, FEWEST_FLIPS) < 0.05 <= mcnemar_exact(0, FEWEST_FLIPS - 1)


def test_holm_corrects_among_tags() -> None:
    sums = {"a": (0, 7), "b": (0, 8), "c": (1, 1)}  # p = 1/64, 1/128, 1
    groups = []
    for name, (gained, lost) in sums.items():
        group = Sums()
        for number in range(30):
            group.add(float(number >= gained), float(not gained <= number < gained + lost))
        groups.append(group.figures(name))
    found = corrected(groups)
    assert [one.p_value for one in found] == pytest.approx([2 / 64, 3 / 128, 1.0])
    assert [one.judgement for one in found] == ["worse", "worse", "no difference shown"]
    assert corrected([]) == []


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_without_repeats_the_interval_is_that_of_bonett_and_price(gained: int, lost: int, same: int) -> None:
    total = gained + lost + same
    assert paired_mean_interval(gained - lost, gained + lost, total) == pytest.approx(
        paired_difference(gained, lost, total)
    )


@pytest.mark.parametrize(("cases", "repeats"), [(10, 3), (40, 3), (40, 1), (150, 5)])
def test_the_interval_holds_the_true_difference_as_often_as_it_says(cases: int, repeats: int) -> None:
    dice, rounds, covered = random.Random(7), 400, 0
    for _ in range(rounds):
        differences = []
        for _ in range(cases):
            # Cases differ in how hard they are, and now each is a little harder: the true difference is -0.1.
            chance = dice.uniform(0.1, 1)
            before, now = (sum(dice.random() < p for _ in range(repeats)) / repeats for p in (chance, chance - 0.1))
            differences.append(now - before)
        low, high = paired_mean_interval(sum(differences), sum(one * one for one in differences), cases)
        covered += low <= -0.1 <= high
    assert covered / rounds >= 0.95 - 2 * sqrt(0.95 * 0.05 / rounds)


def draws(dice: random.Random, chances: list[float], repeats: int, tags: tuple[str, ...] = ()) -> list[CaseResult]:
    """The results of cases that pass with these chances."""
    found = []
    for number, chance in enumerate(chances):
        share = sum(dice.random() < chance for _ in range(repeats)) / repeats
        tag = (f"t{number % 5}", *tags)
        found.append(case(str(number), "passed" if share == 1 else "failed", repeats, share=share, tags=tag))
    return found


@pytest.mark.slow
@pytest.mark.req("WORK-7")
@pytest.mark.parametrize(("repeats", "repeats_now"), [(1, 1), (3, 3), (1, 5)])
@pytest.mark.parametrize("by_tag", [False, True])
def test_an_unchanged_noisy_system_is_rarely_worse(repeats: int, repeats_now: int, by_tag: bool) -> None:
    dice, rounds = random.Random(11), 300
    chances = [dice.betavariate(2, 1) for _ in range(100)]
    worse = sum(
        compared(
            draws(dice, chances, repeats), draws(dice, chances, repeats_now), by_tag=by_tag, strict=False
        ).is_regression
        for _ in range(rounds)
    )
    assert worse / rounds <= 0.05


@pytest.mark.slow
@pytest.mark.req("WORK-7")
@pytest.mark.parametrize("critical", [1, 2, 10])
def test_flaky_critical_cases_are_no_regression_beyond_chance(critical: int) -> None:
    dice, rounds = random.Random(5), 600
    worse = 0
    for _ in range(rounds):
        before, now = (draws(dice, [0.5] * critical, 3, ("critical",)) for _ in range(2))
        worse += compared(before, now, strict=False).is_regression
    assert worse / rounds <= 0.05


@pytest.mark.slow
@pytest.mark.req("WORK-7")
def test_a_drop_of_twenty_points_is_a_regression() -> None:
    dice, rounds = random.Random(3), 100
    chances = [dice.uniform(0.5, 1) for _ in range(100)]
    lower = [chance - 0.2 for chance in chances]
    worse = sum(
        compared(draws(dice, chances, 3), draws(dice, lower, 3), strict=False).is_regression for _ in range(rounds)
    )
    assert worse / rounds >= 0.95


def test_by_default_a_drop_within_chance_is_no_regression_and_named() -> None:
    before = [case(str(number)) for number in range(20)]
    now = [case(str(number), "error" if number < 3 else "passed") for number in range(20)]
    found = compared(before, now, strict=False)
    assert not found.is_regression and found.severity == "critical" and found.figures.judgement == "no difference shown"
    assert compared(before, now, drop=0.1, strict=False).is_regression
    assert not compared(before, now, drop=0.15, strict=False).is_regression


@pytest.mark.parametrize(("repeats", "is_regression"), [(2, False), (3, True)])
def test_a_critical_case_lost_in_all_repeats_is_a_regression(repeats: int, is_regression: bool) -> None:
    before = [case(str(number), repeats=repeats, tags=("critical",)) for number in range(20)]
    now = [case("0", "failed", repeats, tags=("critical",)), *before[1:]]
    found = compared(before, now, strict=False)
    assert (found.is_regression, found.critical_lost) == (is_regression, 1)
    assert compared(before, now, drop=1.0, strict=False).is_regression == is_regression
    assert compared(before, now).is_regression


@pytest.mark.req("WORK-7")
def test_everything_compared_at_once_is_corrected_together() -> None:
    before = [case(str(number), tags=("a",)) for number in range(30)]
    now = [case(str(number), "failed" if number < 6 else "passed", tags=("a",)) for number in range(30)]
    alone, with_tag = (compared(before, now, by_tag=by_tag, strict=False) for by_tag in (False, True))
    assert alone.figures.p_value == pytest.approx(2 / 64) and alone.figures.judgement == "worse"
    assert with_tag.figures.p_value == pytest.approx(4 / 64) and with_tag.figures.judgement == "no difference shown"


# Five runs are seldom all right, and one often is: without a change, most cases move down and a few far up.
def test_with_unequal_repeats_the_mean_is_tested_and_not_the_moves() -> None:
    before = [case(str(number), "passed" if number < 80 else "failed") for number in range(100)]
    now = [case(str(number), "failed", 5, share=0.8) for number in range(100)]
    figures = compared(before, now, strict=False).figures
    assert (figures.gained, figures.lost) == (20, 80) and figures.difference == pytest.approx(0)
    assert figures.p_value == pytest.approx(1, abs=0.01) and figures.judgement == "no difference shown"


# By moves, 52 of 92 cases fell, which says nothing (p = 0.25); 12 of them broke, and 80 moved by one run of ten.
def test_with_repeats_cases_that_break_show_among_those_that_move_by_chance() -> None:
    before = [case(str(n), "passed" if n < 12 else "failed", 10, share=1.0 if n < 12 else 0.5) for n in range(100)]
    shares = [0.0] * 12 + [0.4] * 40 + [0.6] * 40 + [0.5] * 8
    now = [case(str(n), "failed", 10, share=share) for n, share in enumerate(shares)]
    found = compared(before, now, strict=False)
    assert (found.figures.gained, found.figures.lost) == (40, 52)
    assert found.figures.judgement == "worse" and found.is_regression


# One run of each case passed by luck, which 20 runs of an unchanged system cannot repeat.
@pytest.mark.req("WORK-7")
def test_a_lucky_single_run_is_no_evidence_against_many_repeats() -> None:
    tags = [(f"t{number % 30}",) for number in range(3000)]
    # Of the 100 cases of a tag 5 failed before, but none of the tag t0; now each of them passes in 19 of 20 runs.
    before = [case(str(n), "failed" if n % 30 and n < 150 else "passed", tags=tag) for n, tag in enumerate(tags)]
    now = [case(str(n), "failed", 20, share=0.95, tags=tag) for n, tag in enumerate(tags)]
    found = compared(before, now, by_tag=True, strict=False)
    lucky = found.tags[0]
    assert (lucky.name, lucky.base_rate) == ("t0", 1.0) and lucky.rate == pytest.approx(0.95)
    assert lucky.high is not None and lucky.high < 0 and not found.is_regression


@pytest.mark.parametrize(("cases", "judgement"), [(5, "no difference shown"), (6, "worse")])
def test_with_unequal_repeats_six_cases_must_move_too(cases: int, judgement: str) -> None:
    before, now = ([case(str(n), status, repeats) for n in range(cases)] for status, repeats in SIDES)
    assert compared(before, now, strict=False).figures.judgement == judgement


def test_the_cases_that_would_show_five_points() -> None:
    before = [case(str(number), "passed" if number % 2 else "failed") for number in range(98)]
    now = [case(str(number), "passed" if number < 49 else "failed") for number in range(98)]
    figures = compared(before, now).figures
    # 50 of 98 flipped, and one gain and one loss are added: the variance is 52 / 100. The change itself adds
    # 0.05 - 0.05². (1.96 + 0.8416)² / 0.05² = 3139.6.
    assert figures.gained + figures.lost == 50 and figures.more_cases == 1782 - 98


# Five points of 100 cases are 5 of them, and it takes 6.
def test_a_hundred_equal_cases_are_not_enough_to_show_five_points() -> None:
    before = [case(str(number)) for number in range(100)]
    broken = [case(str(number), "failed" if number < 5 else "passed") for number in range(100)]
    assert (compared(before, before).figures.more_cases or 0) > 50
    assert compared(before, broken).figures.judgement == "no difference shown"


def test_medians_belong_together() -> None:
    found = medians([1.0, 2.0, 9.0], [2.0, 1.0, 10.0])
    assert found is not None and (found.cases, found.base, found.now, found.change) == (3, 2.0, 2.0, 1.0)
    assert medians([], []) is None


@pytest.mark.parametrize("number", [20_001, 20_002])
def test_medians_of_many_values_are_those_of_few(number: int) -> None:
    dice = random.Random(number)
    base, now = ([dice.random() for _ in range(number)] for _ in range(2))
    found = medians(base, now)
    changes = [after - before for before, after in zip(base, now, strict=True)]
    assert found is not None
    assert [found.base, found.now, found.change] == [percentile(sorted(row), 0.5) for row in (base, now, changes)]


def test_latency_tokens_and_cost_are_told_and_never_a_regression() -> None:
    before = [case("a", latency_s=1.0, tokens=10, cost=0.5), case("b", tokens=10)]
    found = compared(before, [case("a", latency_s=3.0, tokens=30, cost=1.0), case("b", latency_s=9.0, tokens=30)])
    assert found.latency_s is not None and (found.latency_s.cases, found.latency_s.change) == (1, 2.0)
    assert found.tokens is not None and (found.tokens.base, found.tokens.now) == (10, 30)
    assert (found.cost_before, found.cost, found.is_regression) == (0.5, 1.0, False)


def batch(id: str = "b", **more: Any) -> Batch:
    facts: dict[str, Any] = {
        "profiles": [Profile("p", run="one")],
        "models": {"one": "m-1"},
        "params": {"p": {"temperature": 0}},
        "datasets": [DatasetFacts("a/cases.jsonl", "pipeline", "d1")],
        "target": "prompt:p.md",
        "target_digest": "t1",
        "evalloom": "1",
    }
    return Batch(id, "", **{**facts, **more})


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        ({}, []),
        ({"target_digest": "t2"}, ["the target changed: prompt:p.md"]),
        ({"target": "prompt:q.md", "target_digest": "t2"}, ["the target differs: prompt:p.md → prompt:q.md"]),
        ({"datasets": [DatasetFacts("b/cases.jsonl", "pipeline", "d1")]}, []),
        ({"datasets": [DatasetFacts("b/cases.jsonl", "pipeline", "d2")]}, ["the dataset changed: cases.jsonl"]),
        (
            {"datasets": [DatasetFacts("a/cases.jsonl", "pipeline", "d1"), DatasetFacts("b.jsonl", "pipeline", "d3")]},
            ["the dataset changed: none → b.jsonl"],
        ),
        ({"models": {"one": "m-2"}}, ["p: model: m-1 → m-2"]),
        ({"params": {}}, ["p: params: {'temperature': 0} → none"]),
        ({"profiles": [Profile("p", run="one"), Profile("q")], "id": "c"}, ["profiles that are not compared, now: q"]),
        ({"options": {"repeat": 3}, "evalloom": "2"}, ["repeat: 1 → 3", "evalloom: 1 → 2"]),
        ({"identity": "x"}, ["the llm behind a profile changed: its address, or the file of a scripted one"]),
    ],
)  # fmt: skip
def test_what_differs_in_the_configuration_is_named(more: dict[str, Any], texts: list[str]) -> None:
    assert [one.text for one in differences(batch(), batch(**more), [("p", "p")])] == texts
