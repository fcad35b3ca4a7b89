"""Keeps so many runs in flight, and hands each on as it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from evalloom.core.errors import BudgetSpent
from evalloom.core.http import Sleep, sleeping
from evalloom.core.model import Run
from evalloom.engine.run.jobs import Job
from evalloom.engine.run.needs import DependencyQueue

_SLEEPERS = 8
"""How many runs may sleep before a retry without holding a slot, per slot: memory must stay bounded."""


class Slots:
    """`concurrency` places. A run that waits before it tries again lends its place to another."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.active = 0
        self.asleep = 0
        self.wake = asyncio.Event()
        self._returning: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether a new run may begin; those that come back from their sleep go first."""
        lent = min(self.asleep, _SLEEPERS * self.concurrency)
        return not self._returning and self.active - lent < self.concurrency

    def leave(self) -> None:
        """Gives a place back."""
        self.active -= 1
        self._let_back()

    def sleeper(self) -> Sleep:
        """How the calls of one run sleep: however many of them do, the run has one place to lend."""
        is_lent = False

        async def sleep(seconds: float) -> None:
            nonlocal is_lent
            if is_lent:
                await asyncio.sleep(seconds)
                return
            is_lent = True
            try:
                await self._sleep(seconds)
            finally:
                is_lent = False

        return sleep

    async def _sleep(self, seconds: float) -> None:
        """Sleeps without a place, and then waits for one."""
        self.asleep += 1
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._let_back()
        try:
            await asyncio.sleep(seconds)
            self._returning.append(place)
            self._let_back()
            await place
        except asyncio.CancelledError:
            # Whoever was let back no longer counts as asleep.
            self.asleep -= not place.done() or place.cancelled()
            raise

    def _let_back(self) -> None:
        while self._returning and self.active - self.asleep < self.concurrency:
            place = self._returning.popleft()
            if not place.done():
                self.asleep -= 1
                place.set_result(None)
        self.wake.set()


async def execute(
    jobs: Iterable[Job] | DependencyQueue, run: Callable[[Job], Awaitable[Run]], slots: Slots, stop: asyncio.Event
) -> AsyncGenerator[tuple[Job, Run]]:
    """The runs of the jobs as they end. A run keeps its slot until whoever asked for it has dealt with it.

    Jobs that are held back take no slot; whoever settles their needs wakes us through `slots.wake`.
    When `stop` is set nothing new begins, and what is in flight is given up: it is not counted, so it can be resumed.
    When the budget is spent, what is in flight may end as it can, and then BudgetSpent is raised.
    """
    queue = jobs if isinstance(jobs, DependencyQueue) else DependencyQueue(jobs)
    tasks: dict[asyncio.Task[Run], Job] = {}
    ended: deque[asyncio.Task[Run]] = deque()
    spent: BudgetSpent | None = None

    async def in_slot(job: Job) -> Run:
        sleeping.set(slots.sleeper())
        return await run(job)

    def on_end(task: asyncio.Task[Run]) -> None:
        ended.append(task)
        slots.wake.set()

    watcher = asyncio.create_task(_pass_on(stop, slots.wake))
    try:
        while not stop.is_set():
            while slots.is_free and spent is None and (job := queue.next_ready()) is not None:
                task = asyncio.ensure_future(in_slot(job))
                slots.active += 1
                tasks[task] = job
                task.add_done_callback(on_end)
            if not tasks and (spent is not None or not queue.is_waiting):
                break
            if not ended:
                slots.wake.clear()
                await slots.wake.wait()
            while ended:
                task = ended.popleft()
                try:
                    yield tasks[task], task.result()
                except BudgetSpent as fault:
                    spent = fault
                del tasks[task]
                slots.leave()
    finally:
        watcher.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(watcher, *tasks, return_exceptions=True)
    if spent is not None:
        raise spent


async def _pass_on(stop: asyncio.Event, wake: asyncio.Event) -> None:
    await stop.wait()
    wake.set()
