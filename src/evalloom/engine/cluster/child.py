"""The child process of a worker: runs and scores jobs as one machine does, and reports through pipes.

It is a process of its own so that users' code can neither block the worker nor take it along, and so that edited code
is always imported anew. It ends when its stdin closes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import deque
from contextvars import Context
from pathlib import Path

import msgspec

from evalloom.core.errors import BudgetSpent
from evalloom.core.http import sleeping, waiting
from evalloom.core.model import Case, Run, Scored
from evalloom.engine.cluster import bundle, wire
from evalloom.engine.cluster.wire import Control, Event, Hello, Order, Portable
from evalloom.engine.executor import LocalExecutor
from evalloom.engine.loop import run_loop, watching_users_code
from evalloom.engine.plan import Plan
from evalloom.engine.prepare import refuse_without_sandbox
from evalloom.engine.run import Job, Slots
from evalloom.engine.system import Catalog
from evalloom.llms.budget import Budget
from evalloom.llms.clients import Share
from evalloom.settings import environment, key_of, keys, llm_of
from evalloom.settings import secrets as secrets_of
from evalloom.targets import TargetOptions
from evalloom.targets.base import NO_TARGET

_COALESCE_S = 0.05
"""Events are collected for this long, because each message passes through the scheduler."""
_SETTLE_S = 0.05

Work = tuple[str, Job | tuple[Case, Run]]
"""The key of a piece of work, and a job to run, or a run to score."""


class LeasedBudget(Budget):
    """The part of a budget that the client has leased to this process; a call waits until there is more."""

    def __init__(self, ask: asyncio.Event) -> None:
        super().__init__(0.0, 0)
        self._ask = ask
        self._changed = asyncio.Event()
        self.over = ""

    async def refill(self) -> None:
        while self.is_spent:
            if self.over:
                raise BudgetSpent(self.over)
            self._ask.set()
            self._changed.clear()
            await self._changed.wait()

    def lease(self, cost: float, tokens: float) -> None:
        self._max_cost, self._max_tokens = cost, tokens
        self._changed.set()

    def end(self, why: str) -> None:
        self.over = why
        self._max_cost = self._max_tokens = 0
        self._changed.set()


class Child:
    """Runs the jobs that arrive on one pipe, and reports on another; `begun` gets the keys of jobs as they begin."""

    def __init__(self, catalog: Catalog, results: int, begun: int) -> None:
        self._catalog = catalog
        self._results = results
        self._begun = begun
        self._pending: deque[Work] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: list[Event] = []
        self._has_events = asyncio.Event()
        self._wants_lease = asyncio.Event()
        self._budget = LeasedBudget(self._wants_lease)
        self._redactor = keys.Redactor(())

    async def serve(self, source: int) -> None:
        """Build the plan, say hello, and work until the pipe closes."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 20)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb"))
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(self._results, "wb", 0)
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        order: Order = wire.decode(await wire.read_frame(reader))
        try:
            await self._open(order)
        except BaseException as error:
            described = wire.describe_error(error, traceback.format_exc())
            # The message of a user's module that cannot be imported may hold a key.
            await self._send("failed", tuple(map(self._redactor.text, described)))
            if isinstance(error, Exception):
                return
            raise
        await self._send("hello", self._hello)
        helpers = [asyncio.create_task(work) for work in (self._work(), self._report(), self._request_leases())]
        try:
            while True:
                await self._obey(wire.decode(await wire.read_frame(reader)))
        except asyncio.IncompleteReadError:
            pass
        finally:
            for task in (*helpers, *self._tasks):
                task.cancel()
            await asyncio.gather(*helpers, *self._tasks, return_exceptions=True)
            await self._executor.close()
            await self._target.close()
            await self._send("closed", list(self._target.notes()))
            self._writer.close()

    async def _open(self, order: Order) -> None:
        self._root, self._base = (_json_text(path) for path in (os.environ[bundle.ROOT], order.base))
        portable: Portable = bundle.unpack_value(order.portable, Path(os.environ[bundle.ROOT]))
        settings, options = portable.settings, portable.options
        self._redactor = keys.Redactor(secrets_of(settings))
        if options.allow_code:
            refuse_without_sandbox()
        target_options = TargetOptions(
            options.timeout_s,
            environment(settings.folder),
            tuple(secrets_of(settings)),
            options.allow_code,
            settings,
            self._catalog.targets,
            tuple(options.variants),
        )
        self._target = portable.target(target_options) if portable.target else NO_TARGET
        matchers = self._catalog.matchers
        functions = {
            name: function
            for folder, checks in portable.checks
            for name, function in matchers.functions_of(checks, folder).items()
        }
        plan = Plan(
            self._target,
            portable.profiles,
            self._catalog,
            settings,
            options,
            functions=functions,
            judge=portable.judge,
            home=Path(os.environ.get(wire.HOME) or _cache_home()),
        )
        judges = [portable.judge, settings.embeddings] if self._target.may_ask else [portable.judge]
        for name in filter(None, [*plan.llm_names(), *judges]):
            key_of(llm_of(settings, name))
        budget = self._budget if order.has_budget else None
        self._executor = LocalExecutor(plan, self._warn, budget, order.share)
        self._concurrency = options.concurrency
        self._slots = Slots(max(1, self._executor.concurrency))
        await self._executor.open()
        self._redactor = keys.Redactor([*secrets_of(settings), *self._target.secrets])
        self._hello = Hello(self._target.digest, plan.profile_digests())

    async def _obey(self, message: list[Work] | Control) -> None:
        if isinstance(message, list):
            self._pending.extend(message)
            self._slots.wake.set()
            return
        if message.is_ping:
            await self._send("pong", None)
        if message.share is not None:
            self._take_share(message.share, message.generation)
        if message.lease is not None:
            self._budget.lease(*message.lease)
            self._tell(self._lease_event(message.generation))
        if message.over:
            self._budget.end(message.over)
            while self._pending:
                self._tell(Event("stop", self._pending.popleft()[0], ("budget", message.over)))
        for _ in range(min(message.recall, len(self._pending))):
            self._tell(Event("returned", self._pending.pop()[0]))

    def _take_share(self, share: Share, generation: int) -> None:
        self._executor.llms.take_share(share)
        self._slots.concurrency = max(1, share.of(self._concurrency))
        self._slots.wake.set()
        task = asyncio.create_task(self._settle(generation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, generation: int) -> None:
        """Confirm a share once no more is in flight than it allows."""
        slots = self._slots
        while slots.active - slots.asleep > slots.concurrency or not self._executor.llms.is_within_limits:
            await asyncio.sleep(_SETTLE_S)
        self._tell(Event("settled", "", generation))

    async def _work(self) -> None:
        slots = self._slots
        while True:
            while self._pending and slots.is_free:
                key, body = self._pending.popleft()
                slots.active += 1
                # Before it begins: if it ends this process, the worker has to know which jobs were in flight.
                os.write(self._begun, f"{key}\n".encode())
                task = asyncio.create_task(self._do(key, body))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            slots.wake.clear()
            if not (self._pending and slots.is_free):
                await slots.wake.wait()

    async def _do(self, key: str, body: Job | tuple[Case, Run]) -> None:
        wait = self._slots.waiter()
        waiting.set(wait)
        sleeping.set(lambda seconds: wait(asyncio.sleep(seconds)))
        is_in_slot = True
        try:
            if isinstance(body, Job):
                case, run = body.case, await self._executor.run(body)
                scored = self._executor.score_now(case, run)
                # The client has the record of the case, which may be large.
                sent = self._packed(msgspec.structs.replace(run, raw={}))
                self._tell(Event("run", key, (sent, scored and self._packed(scored))))
                if scored is not None:
                    return
                # A judge that sleeps before a retry must not lend a slot, because it holds none.
                self._slots.leave()
                is_in_slot = False
                task = asyncio.create_task(self._score(key, case, run), context=Context())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                await self._score(key, *body)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the client decides what it means
            self._fail(key, error)
        finally:
            if is_in_slot:
                self._slots.leave()

    async def _score(self, key: str, case: Case, run: Run) -> None:
        try:
            scored = self._executor.score_now(case, run) or await self._executor.score(case, run)
            self._tell(Event("scored", key, self._packed(scored)))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the client decides what it means
            self._fail(key, error)

    def _fail(self, key: str, error: BaseException) -> None:
        described = tuple(map(self._redactor.text, wire.describe_error(error, traceback.format_exc())))
        self._tell(Event("stop", key, described))
        if described[0] == "llm":
            self._tell(Event("outage", "", self._executor.in_outage()))

    def _packed(self, value: Run | Scored) -> bytes | Run | Scored:
        """Return a value as the batch log has it, without the keys of this machine, which the client does not know."""
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return value
        if self._root in encoded:
            encoded = encoded.replace(self._root, self._base)
        text = encoded.decode()
        return encoded if self._redactor.is_clean(text) else self._redactor.text(text).encode()

    def _warn(self, message: str) -> None:
        self._tell(Event("warn", "", self._redactor.text(message)))

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._has_events.set()

    def _lease_event(self, generation: int = 0, wants_more: bool = False) -> Event:
        budget = self._budget
        return Event("lease", "", (budget.cost, budget.tokens, budget.estimated, generation, wants_more))

    async def _request_leases(self) -> None:
        while True:
            await self._wants_lease.wait()
            self._wants_lease.clear()
            self._tell(self._lease_event(wants_more=True))

    async def _report(self) -> None:
        spent = (0.0, 0)
        while True:
            await self._has_events.wait()
            await asyncio.sleep(_COALESCE_S)
            self._has_events.clear()
            if (self._budget.cost, self._budget.tokens) != spent:
                spent = self._budget.cost, self._budget.tokens
                self._events.append(self._lease_event())
            events, self._events = self._events, []
            await self._send("events", events)

    async def _send(self, kind: str, content: object) -> None:
        ended: list[str] = []
        if kind == "events" and isinstance(content, list):
            ended = [event.key for event in content if (event.key and event.kind != "run") or _is_scored(event)]
            content = wire.encode([tuple(event) for event in content])
        try:
            self._writer.write(wire.frame(wire.encode((kind, ended, content))))
            await self._writer.drain()
        except (BrokenPipeError, ConnectionError):
            pass


def _is_scored(event: Event) -> bool:
    return event.kind == "run" and event.content[1] is not None


def _json_text(text: str) -> bytes:
    """Return a text as it stands inside a string of JSON."""
    return msgspec.json.encode(text)[1:-1]


def _cache_home() -> Path:
    """Return the folder for the cache of answers on this machine."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "evalloom" / "cluster"


def main(catalog: Catalog) -> None:
    """Serve the worker that started this process."""
    source, results, begun = os.dup(0), os.dup(1), int(sys.argv[1])
    # What users' code prints goes to the log of the worker, and it has nothing to read.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # Last, so that no file of the project takes the place of a library.
    sys.path += [os.getcwd(), os.environ[bundle.ROOT]]
    child = Child(catalog, results, begun)
    with watching_users_code(child._warn):
        run_loop(child.serve(source))
