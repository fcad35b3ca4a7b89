"""Scores runs while others are still going on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

import msgspec

from evalloom.analysis.tally import Tally
from evalloom.batchlog import Log, Rescoring
from evalloom.core.model import Case, Run, Scored, Verdict
from evalloom.engine.run import DependencyQueue
from evalloom.engine.score import grade_now, score
from evalloom.llms import Llms
from evalloom.matchers import Matchers, Services
from evalloom.settings import Settings

_MOST_WAITING = 1000
"""How many runs may wait for their judge before no new ones begin."""
_LOOK_EVERY_S = 0.2
_TOO_LATE = Verdict("scoring", "scoring", "output", "unscored", reason="it was not scored before the end")


def services(
    known: Settings,
    llms: Llms,
    judge: str,
    allow_code: bool,
    functions: Mapping[str, Callable[..., Any]],
    matchers: Matchers,
) -> Services:
    """Whom checks may ask."""
    return Services(
        judge=llms.get(judge, is_judge=True) if judge else None,
        judge_name=judge,
        embed=llms.embedder(known.embeddings) if known.embeddings else None,
        allow_code=allow_code,
        functions=functions,
        matchers=matchers,
    )


class Scorer:
    """Scores runs as they come: at once where that takes no waiting, beside the other runs where it does."""

    def __init__(
        self,
        log: Log | Rescoring,
        tally: Tally,
        services: Services,
        scoring: str = "",
        queue: DependencyQueue | None = None,
    ) -> None:
        """`queue` has the jobs that may wait for what is scored here."""
        self._log = log
        self._tally = tally
        self._services = services
        self._scoring = scoring
        self._queue = queue or DependencyQueue(())
        self._waiting: dict[asyncio.Task[None], Run] = {}
        self._fault: BaseException | None = None
        # A judge that waits before it tries again must not lend out a slot that it does not have.
        self._context = copy_context()

    async def take(self, case: Case, run: Run) -> None:
        """Scores a run that has been written."""
        scored = grade_now(case, run, self._services)
        if scored is not None:
            self._keep(run, scored)
            return
        if len(self._waiting) >= _MOST_WAITING:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._fault is not None:
            raise self._fault
        task = asyncio.create_task(self._score(case, run), context=self._context.copy())
        self._waiting[task] = run
        task.add_done_callback(self._ended)

    async def recount(self, case: Case, run: Run, scored: Scored | None) -> None:
        """Counts a run of a batch that is gone on with; a crash may have left it without verdicts."""
        if scored is not None:
            self._count(run, scored)
        else:
            await self.take(case, run)

    async def finish(self, stop: asyncio.Event | None = None) -> None:
        """Waits for the last verdicts; when all is to stop, those can be made up for later."""
        while self._waiting and not (stop and stop.is_set()):
            await asyncio.wait(self._waiting, timeout=_LOOK_EVERY_S)
        for task, run in list(self._waiting.items()):
            task.cancel()
            # It was run, so it counts; its verdicts are made when the batch is gone on with.
            self._tally.add(run, Scored(run.key, "unscored", verdicts=[_TOO_LATE]))
        await asyncio.gather(*self._waiting, return_exceptions=True)
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    async def _score(self, case: Case, run: Run) -> None:
        self._keep(run, await score(case, run, self._services))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            # The budget is spent, the disk is full, or it is a bug of ours: whoever waits next is told.
            self._fault = self._fault or fault
            self._queue.give_up()

    def _keep(self, run: Run, scored: Scored) -> None:
        if not run.error:
            self._log.append_scored(msgspec.structs.replace(scored, scoring=self._scoring))
        self._count(run, scored)

    def _count(self, run: Run, scored: Scored) -> None:
        self._tally.add(run, scored)
        self._queue.complete(run, scored.status)
