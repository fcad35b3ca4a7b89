"""The event loop of users' async code, in a thread of its own: code that blocks holds up neither the engine nor exit.

All async code of users shares one loop, so that a client or a lock at the top of a module works in every run. A call
that is over its time limit while it blocks the loop is interrupted (`core/interrupt.py`). Code that cannot be
interrupted because it waits in C keeps its thread: other calls start on a fresh loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.interrupt import Interrupted, Place, interrupt, place_in
from evalloom.core.process_state import end_forked_child

_TICK_S = 0.1
"""How often the watchdog looks; shorter pauses of a loop are not noticed."""
_SAY_AFTER_S = 1.0
_ACKNOWLEDGE_S = 0.05
"""How long a cancelled call may clean up before its run goes on without it."""
_INTERRUPTIBLE_S = 0.5
"""How long an interrupt may take to arrive; Python code takes milliseconds."""
_MOST_ABANDONED = 64

Start = Callable[[], Awaitable[Any]]

time_limit: ContextVar[TimeLimit | None] = ContextVar("time_limit", default=None)
"""The time limit of the target that is called now, if it has one around the calls of users' code."""


class _Call:
    """One call on the loop; `home` is the loop of its caller, where `waiting` is."""

    __slots__ = (
        "blocked_before",
        "ended",
        "has_begun",
        "home",
        "host",
        "is_acknowledged",
        "is_cancelled",
        "limit",
        "name",
        "own_blocking",
        "start",
        "submitted",
        "task",
        "timer",
        "variables",
        "waiting",
    )

    def __init__(self, start: Start, name: str, limit: float | None, home: asyncio.AbstractEventLoop) -> None:
        self.start = start
        self.name = name
        self.limit = limit
        self.home = home
        self.host: UserLoop | None = None
        self.variables: Variables = copy_context()
        self.waiting: asyncio.Future[tuple[Any, BaseException | None]] = home.create_future()
        self.ended: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.submitted = monotonic()
        self.has_begun = 0.0
        """When its code began to run, or 0."""
        self.is_cancelled = False
        self.is_acknowledged = False
        """Whether the loop has heard of the cancellation."""
        self.blocked_before = 0.0
        """For how long the loop had been blocked when it began."""
        self.own_blocking = 0.0


class Blocker(Struct, frozen=True):
    """The code that the loop executes now."""

    call: _Call | None
    """The call that it belongs to; None if it is not known, as for a callback."""
    place: Place

    @property
    def name(self) -> str:
        """The function that blocks: that of the call, or of the task that it started."""
        return self.place.function or (self.call.name if self.call else "")

    def __str__(self) -> str:
        return f"{self.name}() blocks its event loop{self.place.where}"


class UserLoop:
    """A loop in a daemon thread, and the watchdog that notices when code blocks it."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self.loop.set_task_factory(self._new_task)
        self._owners: WeakKeyDictionary[asyncio.Future[Any], _Call] = WeakKeyDictionary()
        self.calls: set[_Call] = set()
        self.is_abandoned = False
        self.blocker_name = ""
        self._inbox: deque[_Call] = deque()
        self._is_waking = False
        self._lock = Lock()
        """Decides between starting a call here and moving it to another loop."""
        self._pinged_at = 0.0
        self._blocked_total = 0.0
        self._blocking: _Call | None = None
        self._interrupted_at = 0.0
        self._busy = Event()
        self._process = os.getpid()
        self.thread = Thread(target=self._work, name="evalloom-user-loop", daemon=True)
        self.thread.start()
        Thread(target=self._watch, name="evalloom-watchdog", daemon=True).start()

    # -- called from the engine -------------------------------------------------------------------------

    def submit(self, call: _Call) -> None:
        call.host = self
        self.calls.add(call)
        self._inbox.append(call)
        if not self._busy.is_set():
            self._busy.set()
        # One wake-up serves all calls that are submitted before it is handled.
        if not self._is_waking:
            self._is_waking = True
            self.loop.call_soon_threadsafe(self._start_calls)

    def cancel(self, call: _Call) -> None:
        call.is_cancelled = True
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._cancel, call)

    def blocker(self) -> Blocker | None:
        """Return what the loop executes at this moment; None if it waits for something to happen."""
        task = asyncio.current_task(self.loop)
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None or (task is None and self.blocked_for() < _TICK_S):
            return None
        call, place = self._owners.get(task) if task is not None else None, place_in(frame)
        return Blocker(call, place) if call or place.function else None

    def blocked_for(self) -> float:
        """Return for how long the loop has not reacted."""
        pinged_at = self._pinged_at
        return monotonic() - pinged_at if pinged_at else 0.0

    def lost_time(self, call: _Call) -> float:
        """Return for how long a call has waited for a loop that others block. Its time limit does not count that."""
        if not call.has_begun:
            return monotonic() - call.submitted
        lost = call.has_begun - call.submitted + self._blocked_total - call.blocked_before - call.own_blocking
        blocked = self.blocked_for()
        if blocked > _TICK_S / 2 and (blocker := self.blocker()) is not None and blocker.call is not call:
            # Where it is not known which call blocks, all of them get their time twice before they end.
            is_other = blocker.call is not None or call.limit is None or blocked < call.limit
            return lost + blocked if is_other else lost
        return lost

    # -- on the loop ------------------------------------------------------------------------------------

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            # A task of users' code may raise SystemExit or KeyboardInterrupt, which asyncio lets through.
            with suppress(BaseException):
                self.loop.run_forever()
                break
        with suppress(BaseException):  # users' code: tasks that are cancelled may raise anything
            self.loop.run_until_complete(_end_tasks())
        with suppress(BaseException):
            self.loop.close()

    def _start_calls(self) -> None:
        self._is_waking = False
        with self._lock:
            if self.is_abandoned:
                return
            while self._inbox:
                call = self._inbox.popleft()
                if call.is_cancelled:
                    self._end(call, (None, None))
                else:
                    call.task = asyncio.Task(self._run(call), loop=self.loop, context=call.variables)
                    self._owners[call.task] = call
                    call.task.add_done_callback(partial(self._end_unstarted, call))

    def _new_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        """Start a task of users' code, and remember which call started it."""
        task = asyncio.Task(coroutine, loop=loop, **more)
        parent = asyncio.current_task(loop)
        if parent is not None and (owner := self._owners.get(parent)) is not None:
            self._owners[task] = owner
        return task

    async def _run(self, call: _Call) -> None:
        with self._lock:
            if self.is_abandoned:
                return
            call.has_begun = monotonic()
            call.blocked_before = self._blocked_total
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (await call.start(), None)
        except BaseException as error:  # users' code may raise anything; `run` raises it again
            outcome = (None, error)
        end_forked_child(self._process)
        self._end(call, outcome)

    def _end_unstarted(self, call: _Call, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step never gets into `_run`: users' code may cancel all tasks.
        if call in self.calls and task.cancelled():
            message = f"{call.name}() was cancelled before it began, by other code on its event loop"
            self._end(call, (None, CallError("target_raised", message)))

    def _cancel(self, call: _Call) -> None:
        call.is_acknowledged = True
        if call.task is not None:
            call.task.cancel()

    def _end(self, call: _Call, outcome: tuple[Any, BaseException | None]) -> None:
        self.calls.discard(call)
        with suppress(RuntimeError):  # the caller's loop is closed
            call.home.call_soon_threadsafe(_finish, call, outcome)

    def _pong(self) -> None:
        blocked, self._pinged_at = self.blocked_for(), 0.0
        if blocked > _TICK_S / 2:
            self._blocked_total += blocked
            if self._blocking is not None:
                self._blocking.own_blocking += blocked
        self._blocking = None
        self._interrupted_at = 0.0

    # -- the watchdog -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self.is_abandoned and self.thread.is_alive():
            if not self.calls:
                self._busy.clear()
                if not self.calls and not self._pinged_at:
                    self._busy.wait()
            if not self._pinged_at:
                self._pinged_at = monotonic()
                try:
                    self.loop.call_soon_threadsafe(self._pong)
                except RuntimeError:  # the loop is closed
                    return
            sleep(_TICK_S)
            if self.blocked_for() >= _TICK_S and (blocker := self.blocker()) is not None:
                self._look_at(blocker)

    def _look_at(self, blocker: Blocker) -> None:
        self._blocking = blocker.call
        if self.blocked_for() >= _SAY_AFTER_S:
            _say_once(blocker)
        if self._interrupted_at:
            if monotonic() - self._interrupted_at > _INTERRUPTIBLE_S:
                self._abandon(blocker)
            return
        # Code within its own time limit is left alone, although others wait for it.
        suspects = [blocker.call] if blocker.call else [call for call in tuple(self.calls) if not call.is_acknowledged]
        if self.blocked_for() >= 2 * _TICK_S and any(call.is_cancelled for call in suspects):
            self._interrupted_at = monotonic()
            interrupt(self.thread)

    def _abandon(self, blocker: Blocker) -> None:
        """Leave the thread to the code that blocks it: calls that have not begun move, the others end."""
        with self._lock:
            self.is_abandoned = True
            calls = tuple(self.calls)
            self.calls.clear()
        self.blocker_name = blocker.name
        waiting = [call for call in calls if not call.has_begun and not call.is_cancelled]
        fresh = _replace(self)
        for call in waiting:
            if fresh is None:
                self._end(call, (None, _too_many()))
            else:
                call.task = None
                fresh.submit(call)
        for call in calls:
            if call.has_begun and not call.is_cancelled:
                message = f"{blocker}, and cannot be interrupted there. This run was on the same loop and is lost"
                self._end(call, (None, CallError("loop_blocked", f"{message}; --retry-errors runs it again")))
        with suppress(RuntimeError):
            # When the code ever returns, the tasks of the loop are cancelled, and the thread ends.
            self.loop.call_soon_threadsafe(self.loop.stop)


def _finish(call: _Call, outcome: tuple[Any, BaseException | None]) -> None:
    """Wake the caller; runs on its loop."""
    if not call.waiting.done():
        call.waiting.set_result(outcome)
    elif call.ended is not None and not call.ended.done():
        call.ended.set_result(None)


async def _end_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# -- the one loop -----------------------------------------------------------------------------------------

_current: UserLoop | None = None
_abandoned: list[UserLoop] = []
_choosing = Lock()


def _user_loop() -> UserLoop:
    global _current
    found = _current
    if found is not None and not found.is_abandoned and found.thread.is_alive():
        return found
    with _choosing:
        if _current is None or _current.is_abandoned or not _current.thread.is_alive():
            if len(_still_blocked()) >= _MOST_ABANDONED:
                raise _too_many()
            _current = UserLoop()
        return _current


def _replace(old: UserLoop) -> UserLoop | None:
    with _choosing:
        _abandoned.append(old)
    try:
        return _user_loop()
    except CallError:
        return None


def _too_many() -> CallError:
    message = f"{_MOST_ABANDONED} event loops are blocked by async functions that do not return"
    return CallError("target_hangs", f"{message}. Await what blocks, or run it in a thread: asyncio.to_thread")


def _still_blocked() -> list[UserLoop]:
    return [loop for loop in _abandoned if loop.thread.is_alive()]


def abandoned_names() -> list[str]:
    """Return the functions whose threads could not be ended and still run."""
    return [loop.blocker_name for loop in _still_blocked()]


def _close() -> None:
    """End the loop at exit, so that its tasks can clean up; a loop that is blocked is left."""
    if _current is not None and _current.thread.is_alive():
        with suppress(RuntimeError):
            _current.loop.call_soon_threadsafe(_current.loop.stop)
        _current.thread.join(0.2 if _current.blocked_for() else 2)


atexit.register(_close)


async def run_on_user_loop(start: Start, name: str, limit: float | None = None) -> Any:
    """Return what an async function of the user returns, or raise what it raises.

    `start` is called on the users' loop. After `limit` seconds it raises CallError, also if the function blocks.
    """
    home = asyncio.get_running_loop()
    call = _Call(start, name, limit, home)
    _user_loop().submit(call)
    if limit is not None:
        call.timer = home.call_later(limit, _check_limit, call)
    outer = time_limit.get()
    if outer is not None:
        outer.calls.add(call)
    try:
        result, error = await call.waiting
    except asyncio.CancelledError:
        reason = await _give_up(call)
        if outer is not None:
            outer.reason = outer.reason or reason
        raise
    finally:
        if call.timer is not None:
            call.timer.cancel()
        if outer is not None:
            outer.remove(call)
    if isinstance(error, _Late):
        raise CallError("timeout", f"no answer within {limit:g} s{await _give_up(call)}") from None
    if isinstance(error, Interrupted):
        raise CallError("loop_blocked", f"{name}() blocked its event loop for longer than a run may take") from None
    if error is not None:
        raise error
    return result


class TimeLimit:
    """A time limit around calls of users' code, such as that of a pipeline."""

    def __init__(self, seconds: float) -> None:
        self.calls: set[_Call] = set()
        self.reason = ""
        """Why it is exceeded, for the message: which function blocks."""
        self._seconds = seconds
        self._start = monotonic()
        self._lost = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """The seconds that are left. Time in which calls wait for a loop that others block does not count."""
        lost = sum(call.host.lost_time(call) for call in self.calls if call.host)
        return self._seconds + self._lost + lost - (monotonic() - self._start)

    def watch(self, timeout: asyncio.Timeout) -> None:
        """Let the timeout expire when the time is over."""
        loop, left = asyncio.get_running_loop(), self.left
        if left > 0:
            self._timer = loop.call_later(left, self.watch, timeout)
        elif not timeout.expired():
            timeout.reschedule(loop.time())

    def remove(self, call: _Call) -> None:
        self.calls.discard(call)
        if call.host is not None:
            self._lost += call.host.lost_time(call)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Late(Exception):
    """The time limit of a call is over."""


def _check_limit(call: _Call) -> None:
    """End a call whose time is over; one that others kept waiting gets more time."""
    assert call.host is not None and call.limit is not None
    left = call.limit + call.host.lost_time(call) - (monotonic() - call.submitted)
    if left > 0:
        call.timer = call.home.call_later(left, _check_limit, call)
    elif not call.waiting.done():
        call.waiting.set_result((None, _Late()))


async def _give_up(call: _Call) -> str:
    """Cancel a call, and let it clean up for a moment; return why it does not react, or nothing."""
    assert call.host is not None
    call.ended = call.home.create_future()
    # Before it is cancelled, because the watchdog may interrupt it at once.
    blocker = call.host.blocker() if call.host.blocked_for() > _TICK_S / 2 else None
    call.host.cancel(call)
    await asyncio.wait([call.ended], timeout=_ACKNOWLEDGE_S)
    if blocker is None and not call.is_acknowledged:
        blocker = call.host.blocker()
    return f": {blocker}" if blocker is not None else ""


# -- what users are told ----------------------------------------------------------------------------------

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


@contextmanager
def warnings_to(warn: Callable[[str], None]) -> Iterator[None]:
    """Pass warnings about users' code to a function while the block lasts; each function is named once."""
    _listeners.append(warn)
    _said.clear()
    try:
        yield
    finally:
        _listeners.remove(warn)


def _say_once(blocker: Blocker) -> None:
    if blocker.name in _said or not _listeners:
        return
    _said.add(blocker.name)
    advice = "Other async functions wait meanwhile. Await what takes long, or use asyncio.to_thread"
    _listeners[-1](f"{blocker}. {advice} [loop_blocking]")
