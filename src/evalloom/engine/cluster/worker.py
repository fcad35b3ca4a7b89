"""What runs in a Dask worker: it keeps a child process for each batch, and passes its results on as they come.

Dask calls these functions by name, on the worker's event loop; `run_chunk` is a task, in a thread.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import evalloom
from evalloom.engine.cluster import bundle, wire
from evalloom.engine.cluster.wire import Control, Event, Order

if TYPE_CHECKING:
    from distributed import Worker

_SILENCE_S = 60.0
"""A batch whose client is silent for so long has lost it."""
_FROZEN_S = 300.0
"""A child process that does not answer for so long is ended: code of a user may hold it up for a while."""
_PING_S = 1.0
_PING = wire.encode(Control(is_ping=True))
_CLOSE_S = 10.0
# -P: a file of the project must not take the place of a library while evalloom is imported.
_CHILD = ("-P", "-m", "evalloom.tools.cluster_child")

_sessions: dict[str, Session] = {}
_bundles: dict[str, bytes] = {}
"""The last bundles, by digest, so that a second batch of the same files sends none."""
_MOST_BUNDLES = 2


def describe() -> dict[str, str]:
    """Return what has to be equal on the client and on every worker."""
    return {
        "evalloom": evalloom.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "host": socket.gethostname(),
    }


def has_bundle(digest: str) -> bool:
    return digest in _bundles


def put_bundle(digest: str, data: bytes) -> None:
    """Keep a bundle for the batches that name it."""
    while len(_bundles) >= _MOST_BUNDLES:
        del _bundles[next(iter(_bundles))]
    _bundles[digest] = data


async def open_session(order: bytes, dask_worker: Worker) -> tuple[str, Any]:
    """Start a child process for a batch; return what it says of itself, or its error."""
    session = Session(dask_worker, wire.decode(order))
    # The client has lost this worker for a while, and has given its jobs to others.
    await close_session(session.order.id)
    try:
        answer = await session.start()
    except OSError as error:
        session.remove()
        return "failed", ("error", "worker_failed", str(error), "3")
    if answer[0] == "hello":
        _sessions[session.order.id] = session
    return answer


async def control(id: str, messages: dict[str, bytes], dask_worker: Worker) -> None:
    """Pass on what the client announces to this worker; no message only says that the client is there."""
    session = _sessions.get(id)
    if session is not None:
        session.heard_at = monotonic()
        if message := messages.get(dask_worker.address):
            session.send(message)


async def close_session(id: str) -> list[str]:
    """End a batch; return the notes of its target."""
    session = _sessions.pop(id, None)
    return await session.close() if session is not None else []


def run_chunk(id: str, chunk: bytes, keys: list[str]) -> bool:
    """Run a chunk of jobs: a Dask task that ends when every job has a result, which has been sent by then.

    Return whether the batch is open here.
    """
    from distributed import get_worker, secede

    session = _sessions.get(id)
    if session is None:
        return False
    # The next chunk arrives before this one ends, so that the child process never waits.
    secede()  # type: ignore[no-untyped-call]
    loop: asyncio.AbstractEventLoop = get_worker().loop.asyncio_loop  # type: ignore[attr-defined]
    return asyncio.run_coroutine_threadsafe(session.run(chunk, keys), loop).result()


class Session:
    """One batch on this worker: its folder, its child process, and the way of its results to the client."""

    def __init__(self, worker: Worker, order: Order) -> None:
        self.order = order
        self.heard_at = monotonic()
        self._worker = worker
        self._chunks: dict[str, _Chunk] = {}
        self._begun: set[str] = set()
        self._begun_pipe = -1
        self._cut_line = b""
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._notes: asyncio.Future[list[str]] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._has_answered = True
        self._is_frozen = False

    async def start(self) -> tuple[str, Any]:
        """Unpack the bundle and start the child process."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="evalloom-", dir=self._worker.local_directory))
            await asyncio.to_thread(bundle.unpack, _bundles[self.order.bundle], self._folder)
        working = self._folder / self.order.folder
        working.mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_CHILD,
                str(write),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=working,
                pass_fds=(write,),
                env={**os.environ, bundle.ROOT: str(self._folder)},
                limit=1 << 20,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self._begun_pipe = read
        self.send(wire.encode(self.order))
        answer = await self._read()
        if answer is None or answer[0] != "hello":
            os.close(read)
            code = await self._process.wait()
            self.remove()
            return "failed", answer[2] if answer else ("error", "worker_failed", _ending(code), "3")
        # The client says nothing while it waits for the start, which may take minutes.
        self.heard_at = monotonic()
        self._tasks = [asyncio.create_task(self._forward()), asyncio.create_task(self._watch())]
        return "hello", answer[2]

    async def run(self, chunk: bytes, keys: list[str]) -> bool:
        """Pass a chunk to the child process, and wait until each of its jobs has a result or is lost.

        Return whether the client knows of those that are lost.
        """
        if self._process is None:
            return False
        waiting = _Chunk(set(keys))
        for key in keys:
            self._chunks[key] = waiting
        self.send(chunk)
        await waiting.done.wait()
        return not self._is_closing

    def send(self, message: bytes) -> None:
        """Send the child process a message."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(wire.frame(message))

    async def close(self) -> list[str]:
        """End the child process; return the notes of the target."""
        self._is_closing = True
        self._notes = asyncio.get_running_loop().create_future()
        process = self._process
        notes: list[str] = []
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(TimeoutError):
                notes = await asyncio.wait_for(self._notes, _CLOSE_S)
            with suppress(ProcessLookupError):
                process.kill()
        for task in self._tasks:
            task.cancel()
        self._end(list(self._chunks))
        await asyncio.to_thread(self.remove)
        return notes

    def remove(self) -> None:
        """Remove the files of the batch."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def _read(self) -> tuple[str, list[str], Any] | None:
        assert self._process is not None and self._process.stdout is not None
        try:
            answer: tuple[str, list[str], Any] = pickle.loads(await wire.read_frame(self._process.stdout))
            return answer
        except asyncio.IncompleteReadError:
            return None

    def _read_begun(self) -> None:
        """Note the jobs that have begun since the last look. Looking at each as it begins would cost 0.1 ms a job."""
        with suppress(BlockingIOError):
            while data := os.read(self._begun_pipe, 1 << 16):
                *lines, self._cut_line = (self._cut_line + data).split(b"\n")
                self._begun.update(line.decode() for line in lines)

    async def _forward(self) -> None:
        """Send the client what the child process reports, and in the end which jobs it has taken along."""
        assert self._process is not None
        while (message := await self._read()) is not None:
            kind, ended, content = message
            if kind == "pong":
                self._has_answered = True
                continue
            if kind == "closed":
                if self._notes is not None and not self._notes.done():
                    self._notes.set_result(content)
                continue
            await self._put(content)
            self._read_begun()
            self._begun.difference_update(ended)
            self._end(ended)
        code = await self._process.wait()
        self._read_begun()
        os.close(self._begun_pipe)
        self._process = None
        if not self._is_closing:
            self._unregister()
            begun = self._begun & self._chunks.keys()
            why = (
                f"its process did not answer for {_FROZEN_S:.0f} s and was ended" if self._is_frozen else _ending(code)
            )
            await self._put(wire.encode([tuple(Event("died", "", (sorted(begun), why)))]))
            await asyncio.to_thread(self.remove)
        if self._notes is not None and not self._notes.done():
            self._notes.set_result([])
        self._end(list(self._chunks))

    async def _put(self, events: bytes) -> None:
        data = wire.encode((self._worker.address, events))
        try:
            await self._worker.scheduler.queue_put(key=None, data=data, timeout=None, name=self.order.queue)
        except Exception:  # the scheduler or the client is gone, in whatever way Dask says it
            if not self._is_closing:
                self._unregister()
                self._tasks.append(asyncio.create_task(self._give_up()))

    async def _give_up(self) -> None:
        await self.close()

    async def _watch(self) -> None:
        """End a child process that does not answer, and the batch when its client is silent."""
        silent = 0.0
        while monotonic() - self.heard_at < _SILENCE_S:
            if self._has_answered and not self._is_closing:
                self._has_answered, silent = False, 0.0
                self.send(_PING)
            await asyncio.sleep(_PING_S)
            # Counted, because this worker may have been frozen itself.
            silent += _PING_S
            if silent > _FROZEN_S and self._process is not None:
                self._is_frozen = True
                self._process.kill()
                return
        self._unregister()
        asyncio.get_running_loop().create_task(self._give_up())

    def _unregister(self) -> None:
        if _sessions.get(self.order.id) is self:
            del _sessions[self.order.id]

    def _end(self, keys: list[str]) -> None:
        for key in keys:
            chunk = self._chunks.pop(key, None)
            if chunk is not None:
                chunk.keys.discard(key)
                if not chunk.keys:
                    chunk.done.set()


class _Chunk:
    """The keys of a chunk that have no result yet."""

    def __init__(self, keys: set[str]) -> None:
        self.keys = keys
        self.done = asyncio.Event()


def _ending(code: int) -> str:
    """Return how a process ended."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    import signal

    with suppress(ValueError):
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process was killed by signal {-code}"
