"""Conclusions about cases over several batches: what is flaky, what is newly failing, and what may be chance."""

from __future__ import annotations

import random
from math import comb

import pytest

from evalloom.analysis.history_cases import CaseBatch, Conclusion, chance_of_turns, conclude

pytestmark = pytest.mark.req("WORK-12")


def record(text: str) -> list[CaseBatch]:
    """`+++|xx` is a case that passed three times, and failed twice after a change; `[++x]` is one batch of three."""
    batches: list[CaseBatch] = []
    version, repeats = 0, ""
    inside = False
    for sign in text:
        if sign == "|":
            version += 1
        elif sign in "[]":
            inside = sign == "["
        elif sign == "c":  # an answer from the cache
            batches.append(CaseBatch(len(batches), 1, 1, 1, 0, 0, version))
        else:
            repeats += sign
        if repeats and not inside:
            passed, runs = repeats.count("+"), len(repeats)
            batches.append(CaseBatch(len(batches), runs, passed, runs, passed, runs, version))
            repeats = ""
    return batches


def conclusions(*texts: str) -> list[Conclusion]:
    records = [record(text) for text in texts]
    return conclude(records, max(one[-1].batch for one in records))


def kinds(*texts: str) -> list[str]:
    return [one.kind for one in conclusions(*texts)]


def test_a_case_that_passes_and_fails_with_nothing_changed_is_flaky() -> None:
    assert kinds("++x+") == ["flaky"] and kinds("+++x") == ["newly_flaky"]
    assert kinds("[+x+]") == ["newly_flaky"] and kinds("+|x|+|[+x]") == ["newly_flaky"]
    assert kinds("++++", "xxxx") == ["never_fails", "always_fails"]


def test_returning_to_an_earlier_version_counts_as_unchanged() -> None:
    first, second, third = record("+|+|x")
    again = [first, second, CaseBatch(2, 1, 0, 1, 0, 1, first.fingerprint)]
    assert conclude([again, [first, second, third]], 2)[0].kind == "newly_flaky"
    assert conclude([[first, second, third]], 2)[0].kind == "unclear"


def test_a_case_that_fails_since_a_change_is_newly_failing_if_chance_does_not_explain_it() -> None:
    few, many = "[+++]|[xxx]", "[+++][+++]|[xxx]"
    assert kinds(few) == ["unclear"] and kinds(many) == ["newly_failing"]
    [conclusion] = conclusions(many)
    assert conclusion.since == 2 and conclusion.is_after_change
    assert conclusion.chance == pytest.approx(1 / comb(9, 3))
    assert kinds("[xxx][xxx]|[+++]") == ["fixed"] and kinds("+++++|x") == ["unclear"]


def test_several_cases_together_show_what_one_cannot() -> None:
    assert kinds(*["+++++|x"] * 4) == ["newly_failing"] * 4
    # With one run before and one now, half of all flaky cases would turn this way.
    assert set(kinds(*["+|x"] * 10)) == {"unclear"}
    # Flaky cases that failed as often at other times show how much chance explains.
    assert kinds(*["+++++|x"] * 3, *["+x+++|+"] * 30)[:3] == ["unclear"] * 3


def test_a_case_may_fail_from_now_on_although_nothing_recorded_changed() -> None:
    [conclusion] = conclusions("++++++xxx")
    assert conclusion.kind == "newly_failing" and not conclusion.is_after_change and conclusion.since == 6
    assert kinds("++++++x") == ["newly_flaky"]


def test_cached_answers_are_no_further_evidence() -> None:
    assert kinds("++++++|[xxx]") == ["newly_failing"] and kinds("+ccccc|[xxx]") == ["unclear"]


def test_flake_rate_is_over_the_runs_with_nothing_changed() -> None:
    [conclusion] = conclusions("xx|+x++")
    rate = conclusion.flake_rate
    assert rate is not None and (rate.failed, rate.runs) == (1, 4)
    assert rate.low < rate.rate == 0.25 < rate.high


def test_chance_of_turns_is_that_of_independent_events() -> None:
    assert chance_of_turns([0.5] * 6, 6) == pytest.approx(1 / 64)
    assert chance_of_turns([0.1, 0.2], 1) == pytest.approx(1 - 0.9 * 0.8)
    assert chance_of_turns([0.01] * 30_000, 400) < 1e-6 and chance_of_turns([0.5] * 9_000, 1_000) > 0.999


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("changes", ["none", "last", "each"])
@pytest.mark.parametrize("batches", [2, 4, 10])
def test_an_unchanged_flaky_system_is_rarely_called_newly_failing(batches: int, changes: str, repeats: int) -> None:
    """Changes that have no effect, such as a comment in the target, must not make chance a cause."""
    generator = random.Random(f"{batches} {changes} {repeats}")
    histories, wrong = 400, 0
    for number in range(histories):
        # From one flaky case to many, which pass seldom or nearly always.
        rates = [generator.choice([0.1, 0.5, 0.7, 0.85, 0.95]) for _ in range(generator.choice([1, 3, 30]))]
        if number % 2:
            rates = [rates[0]] * len(rates)
        records = []
        for rate in rates:
            passed = [sum(generator.random() < rate for _ in range(repeats)) for _ in range(batches)]
            version = [at if changes == "each" else at == batches - 1 and changes == "last" for at in range(batches)]
            records.append(
                [CaseBatch(at, repeats, passed[at], repeats, passed[at], repeats, version[at]) for at in range(batches)]
            )
        wrong += any(one.kind == "newly_failing" for one in conclude(records, batches - 1))
    assert wrong / histories <= 0.05
