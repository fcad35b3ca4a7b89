"""Replays that pages started. They go on after the request has been answered, and can be cancelled."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from traceback import format_exception
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.engine.loop import run_loop
from evalloom.pages.errors import RequestError
from evalloom.replay.service import ReplayService

_WAIT_S = 2.0
"""How long a request waits for the end of a replay: thousands of rows without a model take less."""
_STOP_S = 3.0
_MOST_RUNNING = 4
_MOST_KEPT = 50


class StartedReplay(Struct, frozen=True):
    """A replay that a page started."""

    project_id: str
    dataset_id: str
    profile: str
    is_running: bool
    replay_id: str = ""
    """Empty until its first rows are stored."""
    error: str = ""
    """Why it stopped, if it did."""


class BackgroundReplays:
    """The replays that pages of this server started. All methods are thread-safe."""

    def __init__(self, service: ReplayService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._works: list[_Work] = []
        self._is_closed = False

    def start(self, dataset_id: str, body: Record) -> StartedReplay:
        """Start a replay with the body of the HTTP API; wait a moment for its end, and raise if it fails in that."""
        work = _Work(self._service, dataset_id, body)
        with self._lock:
            if self._is_closed:
                raise RequestError("service_stopping", "the server is stopping, so nothing is started")
            if sum(not one.done.is_set() for one in self._works) >= _MOST_RUNNING:
                message = f"{_MOST_RUNNING} replays are running already. Wait for one, or cancel one"
                raise RequestError("too_many_jobs", message)
            self._works = [*self._works, work][-_MOST_KEPT:]
        threading.Thread(target=work.run, name="evalloom-replay", daemon=True).start()
        if work.done.wait(_WAIT_S) and work.error is not None:
            raise work.error
        return work.state()

    def of_dataset(self, dataset_id: str) -> list[StartedReplay]:
        """Return those of a dataset that are running or failed, newest first."""
        states = [work.state() for work in reversed(self._works) if work.dataset_id == dataset_id]
        return [state for state in states if state.is_running or state.error]

    def cancel(self, dataset_id: str) -> None:
        """Stop the running replays of a dataset; what is stored of them stays."""
        for work in list(self._works):
            if work.dataset_id == dataset_id:
                work.cancel()

    def close(self) -> None:
        """Stop all replays."""
        with self._lock:
            self._is_closed = True
            works = list(self._works)
        for work in works:
            work.cancel()
        for work in works:
            work.done.wait(_STOP_S)


class _Work:
    """One replay in a thread of its own, with its own event loop for the calls of a model."""

    def __init__(self, service: ReplayService, dataset_id: str, body: Record) -> None:
        self.dataset_id = dataset_id
        self.done = threading.Event()
        self.error: RequestError | None = None
        self._service = service
        self._body = body
        self._replay_id = ""
        self._is_cancelled = False
        self._cancel_task: Callable[[], Any] | None = None

    def state(self) -> StartedReplay:
        error = self.error.message if self.error else ""
        project, profile = str(self._body["projectId"]), str(self._body.get("profile", ""))
        return StartedReplay(project, self.dataset_id, profile, not self.done.is_set(), self._replay_id, error)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._cancel_task is not None and not self.done.is_set():
            try:
                self._cancel_task()
            except RuntimeError:  # its loop has just been closed
                return

    def run(self) -> None:
        try:
            run_loop(self._replay())
        except RequestError as error:
            self.error = error
        except EvalloomError as error:
            self.error = RequestError(error.code, self._service.redactor.text(str(error)))
        except asyncio.CancelledError:
            pass
        except Exception as error:  # a bug of ours, told as the server tells others
            print(self._service.redactor.text("".join(format_exception(error))), file=sys.stderr, flush=True)
            message = "this is a bug in evalloom; the traceback is on the stderr of the service"
            self.error = RequestError("internal_error", message)
        finally:
            self.done.set()

    async def _replay(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._cancel_task = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        # The stream has no limit of rows, and stores them window by window.
        async with aclosing(self._service.replay_stream(self.dataset_id, self._body)) as windows:
            async for summaries in windows:
                if not self._replay_id:
                    self._replay_id = str(msgspec.json.decode(summaries)[0]["runId"]).rpartition("-")[0]
                if self._is_cancelled:
                    return
