"""The tally: what is counted, over what, and which failures are shown."""

from __future__ import annotations

import pickle
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.tally import STATUSES, PartialTally, Tally
from evalloom.core.model import NO_USAGE, Run, Scored, Status, Usage, Verdict


def pair(
    number: int,
    status: Status = "passed",
    score: float | None = None,
    profile: str = "base",
    tags: tuple[str, ...] = (),
    duration_s: float = 0.5,
    usage: Usage = NO_USAGE,
    error: str = "",
) -> tuple[Run, Scored]:
    key = f"{profile}-{number}"
    started = f"2026-01-05T08:00:{number % 60:02}.250000+00:00"
    run = Run(
        key,
        f"c{number}",
        profile,
        number=number,
        started_at=started,
        duration_s=duration_s,
        usage=usage,
        tags=tags,
        error=error,
    )
    return run, Scored(key, status, score)


def tally_of(pairs: list[tuple[Run, Scored]]) -> Tally:
    tally = Tally()
    for run, scored in pairs:
        tally.add(run, scored)
    return tally


def test_summary_is_the_object_of_json() -> None:
    statuses: list[Status] = ["passed", "passed", "failed", "error", "skipped", "blocked", "unscored"]
    tally = tally_of([pair(number, status) for number, status in enumerate(statuses)])
    summary = msgspec.to_builtins(tally.summary("b1", "batches/b1"))
    assert (summary["batch"], summary["path"], summary["total"], summary["passed"]) == ("b1", "batches/b1", 7, 2)
    assert [summary[status] for status in STATUSES] == [2, 1, 1, 1, 1, 1]
    assert summary["pass_rate"] == 0.5 and 0 < summary["pass_rate_low"] < 0.5 < summary["pass_rate_high"] < 1
    assert summary["duration_s"] == 6.5
    assert summary["profiles"]["base"]["total"] == 7 and summary["profiles"]["base"]["mean_latency_s"] == 0.5


def test_nothing_that_counts_has_no_rate() -> None:
    for tally in (Tally(), tally_of([pair(1, "skipped"), pair(2, "unscored")])):
        summary = tally.summary()
        assert (summary.pass_rate, summary.pass_rate_low, summary.pass_rate_high) == (None, None, None)
    assert Tally().summary().total == 0 and Tally().summary().duration_s == 0 and Tally().worst() == []


@pytest.mark.parametrize("pass_if", [None, 0.5])
def test_parts_that_other_processes_count_add_up(pass_if: float | None) -> None:
    dice = random.Random(3)
    pairs = [
        pair(
            dice.randrange(300),
            status := dice.choice(STATUSES),
            0.25 if status in ("passed", "failed") else None,
            dice.choice(["base", "other"]),
            tuple(dice.choices("ab", k=1)),
            error="no answer" if status == "error" else "",
            usage=Usage(dice.randrange(9), 1, 0.25, 1),
        )
        for _ in range(2000)
    ]
    unscored = [Verdict("n", "contains", "output", "unscored", reason=f"why {number}") for number in range(150)]
    pairs += [(run, msgspec.structs.replace(scored, verdicts=dice.choices(unscored))) for run, scored in pairs[:500]]
    whole, merged = Tally(pass_if), Tally(pass_if)
    for run, scored in pairs:
        whole.add(run, scored)
    for start in range(0, len(pairs), 400):
        part = PartialTally()
        for run, scored in pairs[start : start + 400]:
            part.add(run, scored)
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert merged.summary() == whole.summary() and merged.worst() == whole.worst()
    assert list(merged.reasons.items()) == list(whole.reasons.items()) and merged.counts == whole.counts
    assert merged.count_of(pairs[0][0]) == whole.count_of(pairs[0][0])


def test_usage_of_runs_and_of_scoring_is_added_up() -> None:
    run, scored = pair(1, usage=Usage(10, 5, 0.1, 1, retries=2))
    judged = msgspec.structs.replace(scored, usage=Usage(3, 2, 0.2, 1, cached=1, unpriced=1))
    tally = tally_of([(run, judged), pair(2, profile="other")])
    summary = tally.summary()
    assert (summary.tokens, summary.cost, summary.cached, summary.retries, summary.unpriced) == (20, 0.3, 1, 2, 1)
    assert summary.profiles["base"].tokens == 20 and summary.profiles["other"].tokens == 0
    assert tally.spent.tokens == 20 and tally.counts["passed"] == 2


def test_latencies_are_those_of_answers() -> None:
    slow = [pair(number, duration_s=number / 10) for number in range(1, 11)]
    without_answer = [pair(11, "error", duration_s=60, error="timed out"), pair(12, "blocked", duration_s=0)]
    figures = tally_of(slow + without_answer).summary().profiles["base"]
    assert (figures.p50_latency_s, figures.p95_latency_s, figures.mean_latency_s) == (0.55, 0.955, 0.55)
    nothing = tally_of(without_answer).summary().profiles["base"]
    assert (nothing.p50_latency_s, nothing.p95_latency_s, nothing.mean_latency_s) == (None, None, None)


def test_groups_by_profile_and_tag() -> None:
    tally = tally_of([pair(1, tags=("a", "b")), pair(2, "failed", tags=("b",)), pair(3, profile="other", tags=("a",))])
    assert tally.group().total == 3 and tally.group(tag="a").total == 2 and tally.group("base", "a").total == 1
    assert tally.group(tag="b").shares.pass_rate == 0.5 and tally.group(tag="c").shares.pass_rate is None
    assert tally.profiles() == ["base", "other"] and tally.tags() == ["a", "b"]


def test_the_caller_may_tell_how_long_the_batch_took() -> None:
    assert tally_of([pair(1), pair(30)]).summary(duration_s=1.25).duration_s == 1.25


def test_worst_failures_in_whatever_order_they_came() -> None:
    pairs = [pair(number, "failed", score=number % 4 / 4) for number in range(40)]
    random.Random(1).shuffle(pairs)
    worst = tally_of(pairs).worst()
    assert [run.number for run, _ in worst] == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]


@pytest.mark.parametrize(
    ("failed", "errors", "shown"), [(20, 20, (5, 5)), (2, 20, (2, 8)), (20, 3, (7, 3)), (1, 1, (1, 1))]
)
def test_failures_and_errors_are_both_shown(failed: int, errors: int, shown: tuple[int, int]) -> None:
    failures = [pair(number, "failed") for number in range(failed)]
    worst = tally_of(failures + [pair(100 + number, "error") for number in range(errors)]).worst()
    statuses = [scored.status for _, scored in worst]
    assert (statuses.count("failed"), statuses.count("error")) == shown


# All runs of a case have its tags.
runs = st.builds(
    lambda number, status, score, profile: pair(number, status, score, profile, ("x", "y", "安全")[: number % 4]),
    number=st.integers(0, 59),
    status=st.sampled_from(STATUSES),
    score=st.none() | st.floats(0, 1),
    profile=st.sampled_from(["a", "b"]),
)


@given(st.lists(runs, max_size=40))
def test_counts_add_up(pairs: list[tuple[Run, Scored]]) -> None:
    summary = tally_of(pairs).summary()
    assert summary.total == len(pairs) == sum(getattr(summary, status) for status in STATUSES)
    for field in ("total", *STATUSES):
        assert getattr(summary, field) == sum(getattr(one, field) for one in summary.profiles.values())


@given(st.lists(runs, max_size=40), st.randoms())
def test_the_order_of_the_runs_does_not_matter(pairs: list[tuple[Run, Scored]], order: random.Random) -> None:
    shuffled = order.sample(pairs, len(pairs))
    assert tally_of(shuffled).summary() == tally_of(pairs).summary()


@pytest.mark.parametrize("profiles", [("p",), ("p", "q")])
@pytest.mark.parametrize("pass_if", [None, 0.5])
def test_the_groups_by_tag_are_those_of_each_tag(profiles: tuple[str, ...], pass_if: float | None) -> None:
    tally = Tally(pass_if)
    for number, tags in enumerate([("a",), ("a", "b"), ("b", "c", "b"), ()]):
        for profile in profiles:
            for repeat in range(2):
                run = Run(f"{number}{profile}{repeat}", str(number), profile, number=number, repeat=repeat, tags=tags)
                tally.add(run, Scored(run.key, "passed" if (number + repeat) % 3 else "failed"))
    by_tag = tally.by_tag()
    assert list(by_tag) == ["a", "b", "c"]
    for tag, group in by_tag.items():
        alone = tally.group(tag=tag)
        assert (group.counts, group.shares.counts) == (alone.counts, alone.shares.counts)
        assert group.pooled.counts == alone.pooled.counts
