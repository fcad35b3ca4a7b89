"""Which worker gets which job, and what becomes of the jobs of a worker that is lost. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from evalloom.core.model import Case, Run, Scored
from evalloom.engine.run import Job

MOST_DEATHS_ALONE = 2
"""So often a job may be the only one in flight when its worker dies, before it counts as the cause."""
AHEAD = 32
AHEAD_PER_SLOT = 2
"""So many jobs wait at a worker at least, and for each of its slots, because a new one takes a moment to get there."""
MOST_APPETITE = 4
_MOST_AT_ONCE = 256


class Work:
    """A job to run and score, or a run to score, and what it has been through."""

    __slots__ = ("body", "case", "deaths", "deaths_alone", "key", "run", "scored", "worker")

    def __init__(self, key: str, body: Job | tuple[Case, Run]) -> None:
        self.key = key
        self.body = body
        self.deaths = self.deaths_alone = 0
        self.worker: Worker | None = None
        self.run: asyncio.Future[Run] | None = None
        """Waits for the run; None when there is one."""
        self.scored: asyncio.Future[Scored] | None = None
        """Waits for the score, once there is a run without one."""

    def is_done(self) -> bool:
        return all(future is None or future.done() for future in (self.run, self.scored))


class Worker:
    """A worker that is open for this batch, and what it has to do."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.slots = 0
        """Its share of the concurrency; 0 until it has confirmed one."""
        self.works: dict[str, Work] = {}
        self.is_for_suspects = False
        self.recalled = False
        self.appetite = 1
        """How many times the usual number of jobs wait there: more where they are done before others arrive."""
        self.has_worked = False

    @property
    def running(self) -> int:
        """How many jobs it has without a run."""
        return sum(work.scored is None for work in self.works.values())


class Dispatcher:
    """Distributes work: to all workers evenly, but alone what was twice in flight when a worker died."""

    def __init__(self, is_sparing: bool = False) -> None:
        """Sparing, only one job waits at a worker: what it has may turn out not to be needed."""
        self.workers: dict[str, Worker] = {}
        self._is_sparing = is_sparing
        self._queue: deque[Work] = deque()
        self._suspects: deque[Work] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._suspects)

    def add(self, work: Work) -> None:
        (self._suspects if work.deaths > 1 else self._queue).append(work)

    def drain(self) -> Iterator[Work]:
        """Yield and forget all work that is at no worker."""
        for queue in (self._queue, self._suspects):
            while queue:
                yield queue.popleft()

    def next_chunks(self) -> Iterator[tuple[Worker, list[Work]]]:
        """Yield what each worker gets now."""
        workers = [worker for worker in self.workers.values() if worker.slots]
        yield from self._for_suspects(workers)
        while self._queue and self._queue[0].is_done():
            self._queue.popleft()
        for worker in workers if self._queue else ():
            if worker.has_worked and not worker.running:
                worker.appetite = min(2 * worker.appetite, MOST_APPETITE)
        free = {
            worker: space
            for worker in workers
            # One with half of what may wait there has enough for now: few large chunks cost less than many small ones.
            if not worker.is_for_suspects
            and (space := worker.slots + self._ahead(worker) - worker.running) > self._ahead(worker) // 2
        }
        total = sum(free.values())
        number = min(len(self._queue), total)
        for worker, space in sorted(free.items(), key=lambda item: -item[1]):
            most = min(-(-number * space // total), _MOST_AT_ONCE) if total else 0
            chunk = list(self._take(most, worker))
            if chunk:
                yield worker, chunk

    def end(self, work: Work) -> None:
        """Note that work needs nothing more from its worker."""
        if work.worker is not None:
            work.worker.works.pop(work.key, None)
            work.worker = None

    def lose(self, worker: Worker, in_flight: Iterable[str] | None = None) -> Iterator[Work]:
        """Take back what a worker had when it died, and yield what will not be tried again.

        `in_flight` are the keys of the jobs that had begun; None if that is unknown, and each may have.
        """
        keys = set(worker.works if in_flight is None else in_flight)
        is_alone = len(worker.works) == 1
        lost = list(worker.works.values())
        worker.works.clear()
        # In front, in their order: later jobs may depend on them.
        for work in reversed(lost):
            work.worker = None
            if work.is_done():
                continue
            if work.key in keys:
                work.deaths += 1
                work.deaths_alone += is_alone
            if work.deaths_alone >= MOST_DEATHS_ALONE:
                yield work
            elif work.deaths > 1:
                self._suspects.appendleft(work)
            else:
                self._queue.appendleft(work)

    def idle_and_behind(self) -> Worker | None:
        """Return the worker with the most jobs that wait, if others have nothing to do; None otherwise."""
        workers = [worker for worker in self.workers.values() if worker.slots and not worker.is_for_suspects]
        if self._queue or not any(worker.running < worker.slots for worker in workers):
            return None
        behind = max(workers, key=lambda worker: worker.running - worker.slots)
        return behind if behind.running > behind.slots and not behind.recalled else None

    def _ahead(self, worker: Worker) -> int:
        return 1 if self._is_sparing else worker.appetite * max(AHEAD, AHEAD_PER_SLOT * worker.slots)

    def _take(self, most: int, worker: Worker) -> Iterator[Work]:
        while most > 0 and self._queue:
            work = self._queue.popleft()
            if work.is_done():
                continue
            most -= 1
            work.worker = worker
            worker.works[work.key] = work
            worker.has_worked = True
            yield work

    def _for_suspects(self, workers: list[Worker]) -> Iterator[tuple[Worker, list[Work]]]:
        """Keep up to half of the workers for suspects, each of which runs with nothing beside it."""
        while self._suspects and self._suspects[0].is_done():
            self._suspects.popleft()
        kept = [worker for worker in workers if worker.is_for_suspects]
        for worker in kept:
            if not self._suspects and not worker.works:
                worker.is_for_suspects = False
        wanted = min(len(self._suspects), max(1, len(workers) // 2)) - len(kept)
        for worker in sorted(workers, key=lambda worker: len(worker.works))[: max(0, wanted)]:
            if not worker.is_for_suspects:
                worker.is_for_suspects = True
                kept.append(worker)
        for worker in kept:
            if self._suspects and not worker.works:
                work = self._suspects.popleft()
                work.worker = worker
                worker.works[work.key] = work
                yield worker, [work]
