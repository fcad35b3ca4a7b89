"""Runs jobs concurrently, and yields each run when it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

from evalloom.core.errors import BatchStop, LlmUnavailable
from evalloom.core.http import Wait, sleeping, waiting
from evalloom.core.model import Run
from evalloom.engine.run.jobs import Job
from evalloom.engine.run.needs import DependencyQueue

_SLEEPERS = 8
"""The number of runs per slot that may sleep before a retry without holding a slot, so that memory stays bounded."""

Result = TypeVar("Result")


class Slots:
    """Limits concurrent runs. A run that sleeps before a retry, or waits for another, lends its slot."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.active = 0
        self.asleep = 0
        self.wake = asyncio.Event()
        self._returning: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether a new run may begin; runs that wake up go first."""
        lent = min(self.asleep, _SLEEPERS * self.concurrency)
        return not self._returning and self.active - lent < self.concurrency

    def leave(self) -> None:
        """Free a slot."""
        self.active -= 1
        self._readmit()

    def waiter(self) -> Wait:
        """Return how the calls of one run wait, which has only one slot to lend."""
        is_lent = False

        async def wait(awaited: Awaitable[Result], /) -> Result:
            nonlocal is_lent
            if is_lent:
                return await awaited
            is_lent = True
            try:
                return await self._lend(awaited)
            finally:
                is_lent = False

        return wait

    async def _lend(self, awaited: Awaitable[Result]) -> Result:
        """Wait without a slot, and then for one."""
        self.asleep += 1
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readmit()
        try:
            result = await awaited
            self._returning.append(slot)
            self._readmit()
            await slot
            return result
        except asyncio.CancelledError:
            # A run that was readmitted no longer counts as asleep.
            self.asleep -= not slot.done() or slot.cancelled()
            raise

    def _readmit(self) -> None:
        while self._returning and self.active - self.asleep < self.concurrency:
            slot = self._returning.popleft()
            if not slot.done():
                self.asleep -= 1
                slot.set_result(None)
        self.wake.set()


async def execute(
    jobs: Iterable[Job] | DependencyQueue, run: Callable[[Job], Awaitable[Run]], slots: Slots, stop: asyncio.Event
) -> AsyncGenerator[tuple[Job, Run]]:
    """Yield the runs of jobs as they end. A run keeps its slot until the caller asks for the next one.

    A job that waits for its needs takes no slot; `slots.wake` is set when it may be ready.
    When `stop` is set, no run begins, and runs in flight are cancelled: they are not counted, so they can be resumed.
    When the budget is spent, runs in flight may end, and then BudgetSpent is raised. When an llm does not answer, no
    further run of that profile begins; the runs of other profiles go on, and then LlmUnavailable is raised.
    """
    queue = jobs if isinstance(jobs, DependencyQueue) else DependencyQueue(jobs)
    tasks: dict[asyncio.Task[Run], Job] = {}
    ended: deque[asyncio.Task[Run]] = deque()
    stopped: BatchStop | None = None
    unavailable: dict[str, None] = {}

    async def in_slot(job: Job) -> Run:
        wait = slots.waiter()
        waiting.set(wait)
        sleeping.set(lambda seconds: wait(asyncio.sleep(seconds)))
        return await run(job)

    def on_end(task: asyncio.Task[Run]) -> None:
        ended.append(task)
        slots.wake.set()

    async def wake_on_stop() -> None:
        await stop.wait()
        slots.wake.set()

    loop = asyncio.get_running_loop()
    watcher = loop.create_task(wake_on_stop())
    try:
        while not stop.is_set():
            while slots.is_free and stopped is None and (job := queue.next_ready()) is not None:
                task = loop.create_task(in_slot(job))
                slots.active += 1
                tasks[task] = job
                task.add_done_callback(on_end)
            if not tasks and (stopped is not None or not queue.is_waiting):
                break
            if not ended:
                slots.wake.clear()
                await slots.wake.wait()
            while ended:
                task = ended.popleft()
                try:
                    yield tasks[task], task.result()
                except LlmUnavailable as error:
                    unavailable[str(error)] = None
                    queue.drop_profile(tasks[task])
                except BatchStop as error:
                    stopped = error
                del tasks[task]
                slots.leave()
    finally:
        watcher.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(watcher, *tasks, return_exceptions=True)
    if stopped is not None:
        raise stopped
    if unavailable and not stop.is_set():
        raise LlmUnavailable("; ".join(unavailable))
