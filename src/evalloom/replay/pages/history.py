"""The rows of a replay beside those of the replay before it: one pass over a whole dataset."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from evalloom.replay.compare import Pair, compare_rows
from evalloom.replay.recipe.trace import Outcome
from evalloom.replay.requests import check_id, not_found
from evalloom.replay.service import ReplayService
from evalloom.replay.session import LruCache
from evalloom.replay.store.database import MAX_CANDIDATES
from evalloom.replay.store.records import UNMET, ReplayCounts

NO_PROJECT = "-"
"""Stands for the project in the path of a dataset that no project is chosen for; no project has this id."""
SHOWS = ("failed", "drift", "new", "missing", "check")
"""The filters of rows; `check` are those whose answer missed its expectations."""
_MOST_CACHED = 4


class RowState(Struct, frozen=True, gc=False):
    """A row of a replay in a list."""

    row_index: int
    run_id: str
    status: str
    missing: int
    change: str = ""
    """`stable`, `drift` or `new` against the replay before; empty if there is none."""
    before: str = ""
    """The run of the same row in the replay before."""
    check: str = ""
    """The status of the checks, if a model was asked."""

    def is_shown(self, show: str) -> bool:
        if show in ("drift", "new"):
            return self.change == show
        if show == "missing":
            return self.missing > 0
        return self.check in UNMET if show == "check" else show in ("", self.status)


class RowCounts(Struct, frozen=True):
    """How many rows of a replay there are of each kind."""

    succeeded: int = 0
    failed: int = 0
    stable: int = 0
    drift: int = 0
    new: int = 0
    gone: int = 0
    missing: int = 0
    check: int = 0


def replays_of(
    service: ReplayService, project_id: str, dataset_id: str, below: int | None = None
) -> list[ReplayCounts]:
    """Return the replays of a dataset through a project, newest first; those of all projects for `NO_PROJECT`."""
    bound = {} if below is None else {"before": below}
    every = service.store.replays(check_id(dataset_id, "dataset"), MAX_CANDIDATES, 0, **bound)
    return [one for one in every if project_id in (NO_PROJECT, one.replay.project)]


def find_replay(service: ReplayService, dataset_id: str, id: str) -> ReplayCounts:
    """Return a replay of a dataset by its id."""
    stored = service.store.replay(check_id(id, "replay"))
    if stored is None or stored.replay.dataset != dataset_id:
        raise not_found("replay", id)
    return stored


def before(service: ReplayService, replay: ReplayCounts) -> ReplayCounts | None:
    """Return the last complete replay before one, of the same project and dataset; one of the same rows if there is."""
    older = replays_of(service, replay.replay.project, replay.replay.dataset, replay.number)
    complete = [one for one in older if one.state == "complete"]
    overlapping = [one for one in complete if one.offset < replay.end and replay.offset < one.end]
    return next(iter((*overlapping, *complete)), None)


class RowHistory:
    """Compares replays with those before them. The last ones are cached: 200,000 rows take a second."""

    def __init__(self, service: ReplayService) -> None:
        self._service = service
        self._cache = LruCache[tuple[list[RowState], RowCounts]](_MOST_CACHED)

    def of(self, replay: ReplayCounts, older: ReplayCounts | None) -> tuple[list[RowState], RowCounts]:
        """Return the rows of a replay and their counts, with changes against an older one."""
        # Stored rows never change, but a running replay gets more of them.
        key = "/".join(f"{one.replay.id} {one.counts.rows}" for one in (replay, older) if one)
        return self._cache.get(key) or self._cache.put(key, self._read(replay, older))

    def _read(self, replay: ReplayCounts, older: ReplayCounts | None) -> tuple[list[RowState], RowCounts]:
        store, id = self._service.store, replay.replay.id
        pairs = compare_rows(store.summaries(older.replay.id) if older else (), store.summaries(id))
        outcomes = store.outcomes(id) if replay.replay.profile else {}
        rows = [_row(pair, outcomes, older is not None) for pair in pairs if pair.b is not None]
        return rows, _counts(rows, sum(pair.b is None for pair in pairs))


def _row(pair: Pair, outcomes: dict[int, Outcome], is_compared: bool) -> RowState:
    run = pair.b
    assert run is not None
    outcome = outcomes.get(pair.row_index)
    return RowState(
        pair.row_index,
        run.run_id,
        run.status,
        run.missing_variables_count,
        pair.status if is_compared else "",
        pair.a.run_id if pair.a else "",
        outcome.check if outcome else "",
    )


def _counts(rows: list[RowState], gone: int) -> RowCounts:
    statuses, changes = Counter(row.status for row in rows), Counter(row.change for row in rows)
    return RowCounts(
        statuses["succeeded"],
        statuses["failed"],
        changes["stable"],
        changes["drift"],
        changes["new"],
        gone,
        sum(row.missing > 0 for row in rows),
        sum(row.check in UNMET for row in rows),
    )
