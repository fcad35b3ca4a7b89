"""The repeats of a case: grouped from runs in order, counted, and checked against a pass rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from evalloom.core.model import Run, Scored, Status

Count = tuple[int, int]
"""How many runs of a case passed, and how many passed, failed or met an error."""
ScoredRun = tuple[Run, Scored]

COUNTED: frozenset[Status] = frozenset({"passed", "failed", "error"})
"""The statuses that are in a pass rate."""
WORST_FIRST: tuple[Status, ...] = ("error", "failed", "unscored", "blocked", "skipped", "passed")


def cases_of(runs: Iterable[ScoredRun]) -> Iterator[list[ScoredRun]]:
    """Group runs that come by profile, case and repeat: the repeats of one case under one profile, the worst first."""
    for _, repeats in groupby(runs, lambda item: (item[0].profile, item[0].number, item[0].case_id)):
        yield worst_first(repeats)


def with_occurrence(runs: Iterable[ScoredRun], by_number: bool = False) -> Iterator[tuple[str, int, Run, Scored]]:
    """Yield runs that come by profile, case and repeat, with the id and the occurrence that tell their cases apart.

    The same id at another position of the dataset is another case. `by_number` gives cases their ids of format 1.
    """
    occurrences: Counter[str] = Counter()
    profile, case = "", (-1, "")
    for run, scored in runs:
        if run.profile != profile:
            occurrences.clear()
            profile, case = run.profile, (-1, "")
        id = str(run.position) if by_number and run.position else run.case_id
        if (run.number, id) != case:
            case = (run.number, id)
            occurrences[id] += 1
        yield id, occurrences[id], run, scored


def worst_first(repeats: Iterable[ScoredRun]) -> list[ScoredRun]:
    """Sort the repeats of a case by status."""
    return sorted(repeats, key=lambda item: WORST_FIRST.index(item[1].status))


def count_of(repeats: Iterable[ScoredRun]) -> Count:
    """Return how many repeats of a case passed, of how many that count."""
    statuses = [scored.status for _, scored in repeats]
    return statuses.count("passed"), sum(status in COUNTED for status in statuses)


def meets(count: Count, pass_if: float | None) -> bool:
    """Whether the share of a case's runs that passed meets a pass rule; without a rule or counted runs it does not."""
    passed, counted = count
    # 0.8 of 5 is 4.000000000000001 with some shares.
    return pass_if is not None and counted > 0 and passed >= pass_if * counted - 1e-9
