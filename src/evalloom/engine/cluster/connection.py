"""The client's side of Dask: the scheduler, the workers that it has, the tasks, and the queue of results."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.engine.cluster import wire, worker
from evalloom.engine.cluster.bundle import Bundle
from evalloom.engine.cluster.wire import Control, Hello, Order
from evalloom.settings import environment

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 10.0
_START_S = 60.0
_ANSWER_S = 60.0
"""A scheduler that does not answer for so long is lost."""
_OPEN_S = 300.0
_CLOSE_S = 15.0
_LOGGERS = ("distributed", "tornado")


class SchedulerLost(Exception):
    """The connection to the scheduler broke, or it does not answer."""


class Connection:
    """A connection to a scheduler; without an address, to one that it starts with workers on this machine."""

    def __init__(self, address: str, workers: int | None, folder: Path, home: Path) -> None:
        """`folder` has the .env of local workers, and `home` the cache of answers that they share."""
        self.id = f"evalloom-{uuid4().hex[:12]}"
        self.queue = f"{self.id}-results"
        self.address = address
        self._workers = workers
        self._folder = folder
        self._home = home.absolute()
        self._client: Client | None = None
        self._local: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._chunks = 0
        self._levels: dict[str, int] = {}
        self._is_lost = False

    async def open(self) -> None:
        """Connect, and make the queue of results."""
        distributed = _distributed()
        # What Dask reports of a lost connection is said in our own words.
        for name in [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGERS)]:
            logger = logging.getLogger(name)
            self._levels[name] = logger.level
            logger.setLevel(logging.CRITICAL + 1)
        if not self.address:
            self.address = await self._start_local()
        try:
            self._client = distributed.Client(
                self.address, asynchronous=True, timeout=_CONNECT_S, set_as_default=False, name="evalloom"
            )
            await self._client
            self._results = await distributed.Queue(self.queue, client=self._client)
        except (OSError, TimeoutError, ValueError, ImportError, TypeError) as error:
            raise _unreachable(self.address, error) from None
        self._client.subscribe_topic("all", self._on_topic)

    async def workers(self) -> set[str]:
        """Return the addresses of the workers that the scheduler has."""
        return set(await self._call(self._scheduler.ncores()))

    async def last_seen(self) -> dict[str, float]:
        """Return when the scheduler last heard from each of its workers, by its own clock."""
        identity = await self._call(self._scheduler.identity())
        return {address: facts["last_seen"] for address, facts in identity["workers"].items()}

    async def workers_changed(self, seconds: float) -> None:
        """Wait until a worker comes or goes, or for some seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def open_session(self, address: str, order: Order, bundle: Bundle) -> Hello | str:
        """Open a batch on a worker; return what it has built, or why it cannot run the batch."""
        try:
            described = await self._on_worker(address, worker.describe)
        except Exception as error:  # the worker cannot import evalloom, or is gone, in whatever way Dask says it
            return f"evalloom {worker.describe()['evalloom']} cannot be started there: {error} [worker_differs]"
        here = worker.describe()
        for name in ("evalloom", "python"):
            if described.get(name) != here[name]:
                versions = f"it has {name} {described.get(name)}, and this machine {here[name]}"
                return f"{versions}. Install the same version on both [worker_differs]"
        try:
            if not await self._on_worker(address, worker.has_bundle, bundle.digest):
                await self._on_worker(address, worker.put_bundle, bundle.digest, bundle.data)
            kind, content = await self._on_worker(address, worker.open_session, wire.encode(order))
        except Exception as error:  # as above
            return f"the batch cannot be opened there: {type(error).__name__}: {error} [worker_failed]"
        if kind == "hello":
            return msgspec.convert(msgspec.to_builtins(content), Hello)
        return f"{wire.as_error(content)} (on {described['host']})"

    async def run_chunk(self, address: str, payload: bytes, keys: list[str]) -> bool:
        """Run a chunk as a task; return whether the worker had the batch open."""
        self._chunks += 1
        future = self.client.submit(
            worker.run_chunk,
            self.id,
            payload,
            keys,
            key=f"{self.id}-{self._chunks}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        try:
            # To await one that fails raises in a task of Dask too, whose error asyncio prints if nobody waits any more.
            with self.client.as_current():
                ended = _distributed().wait(future)
            await ended
            return future.status != "finished" or await future is True
        except Exception:  # cancelled by Dask, because the scheduler is gone: others notice
            return True
        finally:
            future.release()  # type: ignore[no-untyped-call]

    async def next_results(self) -> list[bytes]:
        """Return what workers have sent; wait for it."""
        try:
            first = await self._results.get()
            return [first, *await self._results.get(batch=True)]
        except (OSError, TimeoutError):
            raise self._lost("the connection broke") from None

    async def announce(self, addresses: list[str], controls: dict[str, Control]) -> None:
        """Send workers what is for each of them; the others learn that this client is still there."""
        if addresses:
            messages = {address: wire.encode(control) for address, control in controls.items()}
            with suppress(TimeoutError, OSError):
                run = self.client.run(worker.control, self.id, messages, workers=addresses, on_error="ignore")
                await asyncio.wait_for(run, _ANSWER_S)

    async def close_sessions(self, addresses: list[str]) -> list[str]:
        """End the batch on workers; return the notes of its target."""
        if self._client is None or not addresses:
            return []
        try:
            run = self._client.run(worker.close_session, self.id, workers=addresses, on_error="ignore")
            notes: dict[str, list[str]] = await asyncio.wait_for(run, _CLOSE_S)
        except Exception:  # the scheduler is gone; workers notice the silence
            return []
        return [note for own in notes.values() for note in own or ()]

    async def close(self) -> None:
        """Disconnect, and end what was started here."""
        if self._client is not None:
            with suppress(Exception):  # the scheduler may be gone, or has never been there
                self._results.close()
            with suppress(Exception, asyncio.CancelledError):  # as above
                await asyncio.wait_for(self._client.close(timeout=2), 5)  # type: ignore[no-untyped-call]
            # Where closing did not succeed, the client would try again when it is freed, without a loop.
            self._client.status = "closed"
        if self._local is not None and self._local.stdin is not None:
            self._local.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._local.wait(), 5)
            if self._local.returncode is None:
                self._local.kill()
        # A client that lost its scheduler tries to reconnect until the loop ends, and reports that.
        for name, level in () if self._is_lost else self._levels.items():
            logging.getLogger(name).setLevel(level)

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    @property
    def _scheduler(self) -> Any:
        return self.client.scheduler

    async def _on_worker(self, address: str, function: Any, *args: Any) -> Any:
        answers = await asyncio.wait_for(self.client.run(function, *args, workers=[address]), _OPEN_S)
        return answers[address]

    async def _call(self, answer: Any) -> Any:
        try:
            return await asyncio.wait_for(answer, _ANSWER_S)
        except TimeoutError:
            raise self._lost(f"it has not answered for {_ANSWER_S:.0f} s") from None
        except OSError:
            raise self._lost("the connection broke") from None

    def _lost(self, why: str) -> SchedulerLost:
        self._is_lost = True
        return SchedulerLost(f"the scheduler {self.address} was lost: {why}")

    def _on_topic(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") in ("add-worker", "remove-worker"):
            self._changed.set()

    async def _start_local(self) -> str:
        """Start a scheduler and workers here; they end when their stdin closes, however this process ends."""
        self._local = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "evalloom.engine.cluster.local",
            str(self._workers or os.cpu_count() or 1),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={wire.HOME: str(self._home), **environment(self._folder)},
            # A Ctrl-C in the terminal is for this process, which ends the others in order.
            start_new_session=True,
        )
        assert self._local.stdout is not None
        with suppress(TimeoutError):
            if address := (await asyncio.wait_for(self._local.stdout.readline(), _START_S)).decode().strip():
                return address
        raise EvalloomError("workers_not_started", "--workers: the workers of this machine did not start")


def _unreachable(address: str, error: Exception) -> EvalloomError:
    why = str(error) or type(error).__name__
    hint = "Is it running, and may this machine reach it? Start one: dask scheduler"
    if address.startswith("tls://"):
        hint = "Set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …__CLIENT__CERT and …__CLIENT__KEY (docs/scaling.md)"
        if isinstance(error, TypeError):
            why = "a tls:// address needs TLS certificates, and Dask's configuration names none"
        elif "certificate" in why:
            why = "its TLS certificate is not of the authority that CA_FILE names"
    elif isinstance(error, OSError):
        hint = f"{hint}. One that speaks TLS has an address with tls://"
    return EvalloomError("scheduler_unreachable", f"--scheduler {address}: cannot be reached: {why}. {hint}")


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        message = "--executor dask needs the library distributed: pip install 'evalloom[dask]'"
        raise usage_error("dask_missing", message) from None
    return distributed
