"""`evalloom compare --self`: compares the repeats of a batch with each other, between which only chance differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, groupby
from pathlib import Path

from msgspec import Struct

from evalloom.analysis.compare_figures import Sums
from evalloom.analysis.statistics import detectable_drop, mean
from evalloom.batchlog import FOLDER, BaselineRun, find, manifest
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch
from evalloom.core.repeats import COUNTED
from evalloom.core.text import did_you_mean, printable, quote
from evalloom.engine.compare_runs import runs_of

_MOST_REPEATS = 20
"""Later repeats are left out: 20 of them are 190 pairs already."""
_LISTED = 10


class FlakyCase(Struct, frozen=True):
    """A case that passed in some of its repeats."""

    case_id: str
    passed: int
    repeats: int
    position: int = 0
    """Its number in its file, if it has no id of its own."""


class ProfileNoise(Struct, frozen=True):
    """How much two runs of the same profile differ by chance."""

    profile: str
    cases: int
    repeats: int
    """How many repeats were compared."""
    lowest_rate: float
    """The lowest pass rate of one repeat, and the highest."""
    highest_rate: float
    flipped: float
    """How many cases differ between two repeats, on average over all pairs of repeats."""
    comparisons: int
    """The number of pairs of repeats."""
    differences_shown: int
    """In how many of them a difference would be concluded, though nothing changed."""
    flaky: int
    flakiest: list[FlakyCase]
    detectable: dict[int, float]
    """The drop that 80 of 100 comparisons show, with one repeat on each side, and with as many as were compared.

    It is for a drop that comes from cases that pass no more.
    """


class SelfComparison(Struct, frozen=True):
    """The result of `evalloom compare --self`: the object that `--json` prints."""

    batch: str
    profiles: list[ProfileNoise]


def compare_self(batch: str, profile: str = "", home: Path = Path()) -> SelfComparison:
    """Compare each repeat of a batch with each other one."""
    path = find(batch, home / FOLDER)
    facts = manifest(path)
    _check_profile(profile, facts)
    noise = [
        found
        for name, runs in groupby(runs_of(path), lambda run: run.profile)
        if profile in ("", name) and (found := _noise(name, runs)) is not None
    ]
    if not noise:
        message = f"{facts.id}: no case has two repeats that count. Run it again with --repeat 5, then compare --self"
        raise usage_error("nothing_to_compare", printable(message))
    return SelfComparison(facts.id, noise)


def _check_profile(profile: str, batch: Batch) -> None:
    names = [one.name for one in batch.profiles]
    if profile and profile not in names:
        hint = did_you_mean(profile, names) or f". It has {', '.join(names)}"
        raise usage_error(
            "unknown_profile_in_batch", printable(f"--profile: {batch.id} has no profile {quote(profile)}{hint}")
        )


def _noise(profile: str, runs: Iterator[BaselineRun]) -> ProfileNoise | None:
    """Return the noise of a profile; None if no case has two repeats."""
    pairs: dict[tuple[int, int], Sums] = {}
    passed: Counter[int] = Counter()
    counted: Counter[int] = Counter()
    flaky: list[FlakyCase] = []
    cases = 0
    for (case_id, _), repeats in groupby(runs, lambda run: (run.case_id, run.occurrence)):
        members = list(repeats)
        outcomes = {run.repeat: run.status == "passed" for run in members if run.status in COUNTED}
        if len(outcomes) < 2:
            continue
        cases += 1
        if 0 < sum(outcomes.values()) < len(outcomes):
            position = members[0].position if members[0].is_unnamed else 0
            flaky.append(FlakyCase(case_id, sum(outcomes.values()), len(outcomes), position))
        compared = sorted(outcomes)[:_MOST_REPEATS]
        for repeat in compared:
            passed[repeat] += outcomes[repeat]
            counted[repeat] += 1
        for first, second in combinations(compared, 2):
            pairs.setdefault((first, second), Sums()).add(float(outcomes[first]), float(outcomes[second]))
    if not pairs:
        return None
    figures = [sums.figures("") for sums in pairs.values()]
    rates = [passed[repeat] / counted[repeat] for repeat in counted]
    # Nothing changed between two repeats, so the mean square of a difference is the variance of noise alone.
    variance = mean([sums.squares / sums.cases for sums in pairs.values()])
    return ProfileNoise(
        profile=profile,
        cases=cases,
        repeats=len(rates),
        lowest_rate=min(rates),
        highest_rate=max(rates),
        flipped=mean([one.gained + one.lost for one in figures]),
        comparisons=len(figures),
        differences_shown=sum(one.judgement != "no difference shown" for one in figures),
        flaky=len(flaky),
        flakiest=sorted(flaky, key=lambda case: abs(case.passed / case.repeats - 0.5))[:_LISTED],
        detectable={number: detectable_drop(variance / number, cases) for number in (1, len(rates))},
    )
