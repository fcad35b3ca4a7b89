"""Progress of a run: what is scored is told as a rate, what only ran as errors."""

from __future__ import annotations

import pytest

from evalloom.console.progress import progress_line
from evalloom.core.model import Status
from evalloom.engine.evaluate import Live


@pytest.mark.parametrize(
    ("counts", "shown"),
    [({"passed": 3, "error": 1}, "75% passed"), ({"unscored": 35, "error": 1}, "1 error"), ({"unscored": 4}, "")],
)
def test_errors_are_no_rate_where_nothing_is_scored(counts: dict[Status, int], shown: str) -> None:
    live = Live()
    live.tally.counts.update(counts)
    done, *parts = progress_line(live).split(" · ")
    assert done == f"{sum(counts.values())} done"
    assert [part for part in parts if "passed" in part or "error" in part] == [shown] * bool(shown)
