"""Scoring beside the runs: what is still waiting at the end is counted, with the reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

from evalloom.analysis.tally import Tally
from evalloom.batchlog import Log, pairs
from evalloom.core.model import Batch, Case, Check, Output, Request, Response, Run
from evalloom.engine.scoring import LocalGrader, Scorer
from evalloom.matchers import Services


async def silent(request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


def test_what_is_not_scored_before_the_end_says_so(tmp_path: Path) -> None:
    tally, log = Tally(), Log(tmp_path / "b", Batch("b", "now"))

    async def stopped() -> None:
        scorer, stop = Scorer(log, tally, LocalGrader(Services(judge=silent, judge_name="j"))), asyncio.Event()
        case, run = Case("a", {}, (Check("judge", "is it right"),)), Run("k", "a", output=Output("yes"))
        log.append_run(run)
        await scorer.add(case, run)
        stop.set()
        await scorer.finish(stop)

    asyncio.run(stopped())
    log.close()
    assert tally.reasons == {("unscored", "the batch ended before it was scored"): 1}
    assert [scored for _, scored in pairs(log.path)] == [None]
