"""Repeats of a case: one cluster in every rate and interval, pass@k, pass^k and pass rules."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.gates import parse
from evalloom.analysis.repeats import Shares
from evalloom.analysis.statistics import pass_at_k, pass_hat_k, wilson_interval
from evalloom.analysis.tally import Tally
from evalloom.core.model import Run, Scored, Status


def tally_of(cases: list[list[bool]], pass_if: float | None = None, profiles: tuple[str, ...] = ("p",)) -> Tally:
    """Each case is the list of its repeats: whether they passed."""
    tally = Tally(pass_if)
    for profile in profiles:
        for number, repeats in enumerate(cases):
            for repeat, has_passed in enumerate(repeats):
                run = Run(f"{profile}{number}-{repeat}", f"c{number}", profile, repeat, number)
                status: Status = "passed" if has_passed else "failed"
                tally.add(run, Scored(run.key, status, float(has_passed)))
    return tally


@pytest.mark.req("WORK-4")
def test_twenty_equal_repeats_of_ten_cases_are_ten_cases() -> None:
    once = tally_of([[number < 8] for number in range(10)]).summary()
    often = tally_of([[number < 8] * 20 for number in range(10)]).summary()
    assert (often.pass_rate, often.cases, often.total) == (0.8, 10, 200)
    assert (often.pass_rate_low, often.pass_rate_high) == pytest.approx(wilson_interval(8, 10))
    assert (often.pass_rate_low, often.pass_rate_high) == (once.pass_rate_low, once.pass_rate_high)


@pytest.mark.req("WORK-4")
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=12), st.integers(2, 5))
def test_copies_of_all_runs_change_neither_rate_nor_interval(cases: list[list[bool]], copies: int) -> None:
    once, often = tally_of(cases).summary(), tally_of([repeats * copies for repeats in cases]).summary()
    for name in ("pass_rate", "pass_rate_low", "pass_rate_high"):
        assert getattr(often, name) == pytest.approx(getattr(once, name))


@pytest.mark.req("WORK-4")
def test_a_case_under_two_profiles_is_one_case_in_the_total() -> None:
    summary = tally_of([[True], [False], [True]], profiles=("a", "b")).summary()
    assert (summary.cases, summary.total, summary.failing) == (3, 6, 2)
    assert (summary.pass_rate_low, summary.pass_rate_high) == pytest.approx(wilson_interval(2, 3))


@pytest.mark.req("WORK-4")
@given(st.permutations([[True], [False] * 2, [True, False, True]] * 2))
def test_a_case_with_more_repeats_weighs_no_more(cases: list[list[bool]]) -> None:
    assert tally_of(cases).summary().pass_rate == pytest.approx((1 + 0 + 2 / 3) / 3)


@pytest.mark.req("WORK-4")
def test_the_gate_on_the_low_end_is_over_cases() -> None:
    tally = tally_of([[True] * 20 for _ in range(10)])
    assert not parse("pass_rate_low >= 0.9").check(tally).holds
    assert "over 10 cases" in parse("pass_rate >= 0.9").check(tally).reason


@pytest.mark.req("WORK-8")
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_and_pass_hat_k_count_all_choices_of_k_repeats(repeats: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(repeats)))
    choices = list(combinations(repeats, k))
    n, c = len(repeats), sum(repeats)
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))


# Chen et al., "Evaluating Large Language Models Trained on Code" (2021), section 2.1: 1 - C(n - c, k) / C(n, k).
@pytest.mark.req("WORK-8")
def test_pass_at_k_by_hand() -> None:
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_hat_k(5, 4, 2) == pytest.approx(0.6)
    profile = tally_of([[True] * 5, [True, True, False, False, False]]).summary().profiles["p"]
    assert profile.pass_at[2] == pytest.approx(0.85) and profile.pass_hat[2] == pytest.approx(0.55)
    assert (profile.flaky, list(profile.pass_at)) == (1, [1, 2, 3, 4, 5])
    assert tally_of([[True], [False]]).summary().profiles["p"].pass_at == {}


@pytest.mark.req("WORK-8", "WORK-4")
def test_with_a_pass_rule_the_rate_is_the_share_of_cases_that_meet_it() -> None:
    cases = [[True] * 5, [True] * 4 + [False], [True] * 3 + [False] * 2]
    summary = tally_of(cases, 0.8).summary()
    assert (summary.pass_rate, summary.failing, summary.pass_if) == (2 / 3, 1, 0.8)
    assert (summary.pass_rate_low, summary.pass_rate_high) == pytest.approx(wilson_interval(2, 3))
    both = tally_of(cases, 0.8, ("a", "b")).summary()
    assert (both.pass_rate, both.failing, both.cases) == (2 / 3, 2, 3)


@pytest.mark.req("WORK-8")
def test_the_worst_failures_name_each_case_once() -> None:
    tally = tally_of([[False] * 20, [True, False]])
    assert [run.case_id for run, _ in tally.worst()] == ["c0", "c1"]
    assert [tally.count_of(run) for run, _ in tally.worst()] == [(0, 20), (1, 2)]


def test_tags_that_were_edited_between_two_repeats_break_nothing() -> None:
    tally = Tally()
    for repeat, tags in enumerate([("old",), ("new",)]):
        tally.add(Run(f"k{repeat}", "c", "p", repeat, 1, tags=tags), Scored(f"k{repeat}", "passed"))
    assert tally.summary().pass_rate == 1.0


# Half of the runs of each case passed: as shares they do not vary at all.
@pytest.mark.req("WORK-4")
@given(st.integers(1, 300), st.integers(2, 20), st.data())
def test_the_interval_is_wider_than_that_of_as_many_cases(cases: int, repeats: int, data: st.DataObject) -> None:
    shares, passed = Shares(), 0
    for _ in range(cases):
        count = data.draw(st.integers(repeats // 2, repeats // 2 + 1))
        shares.move((0, 0), (count, repeats))
        passed += count
    low, high = shares.bounds
    assert low is not None and high is not None
    lowest, highest = wilson_interval(passed, cases * repeats)
    assert high - low > highest - lowest
