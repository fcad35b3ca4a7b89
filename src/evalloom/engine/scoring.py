"""The scorer: scores runs while others are still in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from evalloom.analysis.tally import PartialTally, Tally
from evalloom.batchlog import Log, Rescoring
from evalloom.core.model import Case, Run, Scored, Verdict
from evalloom.engine.run import DependencyQueue
from evalloom.engine.score import grade_now, score
from evalloom.llms import Llms
from evalloom.matchers import Matchers, Services
from evalloom.settings import Settings

if TYPE_CHECKING:
    from evalloom.engine.until_sure import UntilSure

_MAX_WAITING = 1000
"""The number of runs that may wait for a judge before new runs have to wait."""
_POLL_S = 0.2
_TOO_LATE = Verdict("scoring", "scoring", "output", "unscored", reason="the batch ended before it was scored")


def services(
    settings: Settings,
    llms: Llms,
    judge: str,
    allow_code: bool,
    functions: Mapping[str, Callable[..., Any]],
    matchers: Matchers,
) -> Services:
    """Return what checks may call: the judge, the embedder and the user's functions."""
    return Services(
        judge=llms.get(judge, is_judge=True) if judge else None,
        judge_name=judge,
        embed=llms.embedder(settings.embeddings) if settings.embeddings else None,
        allow_code=allow_code,
        functions=functions,
        matchers=matchers,
    )


class Grader(Protocol):
    """Applies the checks of a case to its run, in this process or elsewhere."""

    def score_now(self, case: Case, run: Run) -> Scored | None:
        """Return the score of a run; None if it has to be waited for."""
        ...

    def score(self, case: Case, run: Run) -> Awaitable[Scored]:
        """Return the score of a run, whatever it takes."""
        ...


class LocalGrader:
    """Scores runs in this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def score_now(self, case: Case, run: Run) -> Scored | None:
        return grade_now(case, run, self._services)

    def score(self, case: Case, run: Run) -> Awaitable[Scored]:
        return score(case, run, self._services)


class Scorer:
    """Scores each run when it is added: at once, or in a task of its own where a check calls an llm."""

    def __init__(
        self,
        log: Log | Rescoring,
        tally: Tally,
        grader: Grader,
        scoring: str = "",
        queue: DependencyQueue | None = None,
        until_sure: UntilSure | None = None,
    ) -> None:
        """`queue` holds the jobs that depend on runs scored here."""
        self._until_sure = until_sure
        self._log = log
        self._tally = tally
        self._grader = grader
        self._scoring = scoring
        self._queue = queue or DependencyQueue(())
        self._waiting: dict[asyncio.Task[None], Run] = {}
        self._error: BaseException | None = None
        # A judge that sleeps before a retry must not lend a slot, because it holds none.
        self._context = copy_context()

    async def add(self, case: Case, run: Run) -> None:
        """Score a run that is in the log."""
        scored = self._grader.score_now(case, run)
        if scored is not None:
            self._store(run, scored)
            return
        if len(self._waiting) >= _MAX_WAITING:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._error is not None:
            raise self._error
        task = asyncio.create_task(self._score(case, run), context=self._context.copy())
        self._waiting[task] = run
        task.add_done_callback(self._on_done)

    def add_part(self, lines: bytes, tally: PartialTally) -> None:
        """Store the verdicts that another process has encoded and counted."""
        assert isinstance(self._log, Rescoring)
        self._log.append_lines(lines)
        self._tally.merge(tally)

    async def recount(self, case: Case, run: Run, scored: Scored | None) -> None:
        """Count a run of a resumed batch, and score it where a crash left it without verdicts."""
        if scored is not None:
            self._count(run, scored)
        else:
            await self.add(case, run)

    async def finish(self, stop: asyncio.Event | None = None) -> None:
        """Wait for the last verdicts; with `stop`, leave them to a resumed batch."""
        while self._waiting and not (stop and stop.is_set()):
            await asyncio.wait(self._waiting, timeout=_POLL_S)
        for task, run in list(self._waiting.items()):
            task.cancel()
            # It ran, so it counts; a resumed batch scores it.
            self._tally.add(run, Scored(run.key, "unscored", verdicts=[_TOO_LATE]))
        await asyncio.gather(*self._waiting, return_exceptions=True)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def _score(self, case: Case, run: Run) -> None:
        self._store(run, await self._grader.score(case, run))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The budget is spent, the disk is full, or it is a bug: the next call of `add` raises it.
            self._error = self._error or error
            self._queue.give_up()

    def _store(self, run: Run, scored: Scored) -> None:
        if not run.error:
            self._log.append_scored(msgspec.structs.replace(scored, scoring=self._scoring))
        self._count(run, scored)

    def _count(self, run: Run, scored: Scored) -> None:
        self._tally.add(run, scored)
        if self._until_sure is not None:
            self._until_sure.add(run, scored)
        self._queue.complete(run, scored.status)
