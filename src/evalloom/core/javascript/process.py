"""The processes of the JavaScript engine: started when needed, used by one thread at a time, ended when they hang."""

from __future__ import annotations

import atexit
import os
import platform
import select
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from evalloom.core.javascript.code import JavaScriptError
from evalloom.core.javascript.parts import FOLDER

_HERE = Path(__file__).parent
_MEMORY = 512 * 2**20
_STARTING_S = 30.0
_LONGEST = 32 * 2**20


class Unanswered(Exception):
    """The process was ended because it did not answer in time; `has_computed` if it used up its processor time."""

    def __init__(self, has_computed: bool) -> None:
        super().__init__("no answer in time")
        self.has_computed = has_computed


class Crashed(Exception):
    """The process has ended by itself."""


class EngineProcess:
    """One process of the engine."""

    def __init__(self) -> None:
        setup = orjson.dumps(_setup()).decode()
        # -I and -S: no environment, working folder or site-packages of the user.
        command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_HERE / "inside.py"), setup]
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self.owner = os.getpid()
        self.is_ended = False
        self.texts: set[str] = set()
        """The digests of the texts that the process has."""
        hello: dict[str, Any] = orjson.loads(self._receive(time.monotonic() + _STARTING_S))
        self.is_isolated = bool(hello["isolated"])

    def ask(self, request: bytes, cpu_s: float, wall_s: float) -> bytes:
        """Send a request and return the answer. A process that takes longer is ended: Unanswered."""
        end = time.monotonic() + wall_s
        before = self._cpu_s()
        whole = memoryview(len(request).to_bytes(8, "big") + request)
        while whole:
            try:
                whole = whole[os.write(self._in, whole) :]
            except BlockingIOError:
                self._wait(self._in, select.POLLOUT, end, before, cpu_s)
            except OSError:
                raise self._died() from None
        return self._receive(end, before, cpu_s)

    def _receive(self, end: float, before: float = 0.0, cpu_s: float = _STARTING_S) -> bytes:
        received = bytearray()
        size = -1
        while size < 0 or len(received) < size + 8:
            try:
                part = os.read(self._out, 2**20)
            except BlockingIOError:
                self._wait(self._out, select.POLLIN, end, before, cpu_s)
                continue
            if not part:
                raise self._died()
            received += part
            if size < 0 and len(received) >= 8:
                size = int.from_bytes(received[:8], "big")
                if size > _LONGEST:
                    self.end()
                    raise JavaScriptError("the result is too large", "memory")
        return bytes(received[8:])

    def _wait(self, descriptor: int, event: int, end: float, before: float, cpu_s: float) -> None:
        """Wait for the process while it has time left. Its own time counts, because a busy machine is not its fault."""
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            left = end - time.monotonic()
            # In steps, because what the engine does inside one built-in function cannot be interrupted.
            if poll.poll(max(0, min(left, cpu_s, 0.25)) * 1000 + 1):
                return
            used_up = self._cpu_s() - before > cpu_s
            if left <= 0 or used_up:
                self.end()
                raise Unanswered(used_up)

    def _cpu_s(self) -> float:
        if sys.platform != "linux":
            return 0.0
        with suppress(OSError):
            # The clock of another process, as clock_getcpuclockid(3) makes its number.
            return time.clock_gettime(((~self._process.pid) << 3) | 2)
        return 0.0

    def _died(self) -> Crashed:
        self.end()
        return Crashed()

    @property
    def is_alive(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        if self.owner != os.getpid():
            return
        self.is_ended = True
        with suppress(OSError):
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


@lru_cache(maxsize=1)
def _setup() -> dict[str, Any]:
    """Return what a process needs to start. Raises ImportError where the engine is not installed."""
    from importlib.util import find_spec

    engine = find_spec("_quickjs")
    if engine is None or not engine.origin:
        raise ImportError("_quickjs")
    setup: dict[str, Any] = {
        "engine": engine.origin,
        "parts": str(FOLDER),
        "memory_bytes": _MEMORY,
        "isolate": None,
    }
    from evalloom.core.sandbox.system_calls import filter_for, is_supported

    if sys.platform == "linux" and is_supported(platform.machine()):
        module = str(_HERE.parent / "sandbox" / "inside.py")
        setup["isolate"] = {"module": module, "filter": filter_for(platform.machine()).hex()}
    return setup


_idle: dict[bool, list[EngineProcess]] = {False: [], True: []}
"""The processes that nobody uses: those for threads, and those for quick calls, which must not wait for a thread."""
_lock = Lock()
_KEPT = 4


def borrow(is_quick: bool = False) -> EngineProcess:
    """Return a process that nobody uses, starting one if there is none."""
    while True:
        with _lock:
            process = _idle[is_quick].pop() if _idle[is_quick] else None
        if process is None:
            return EngineProcess()
        if process.is_alive:
            return process
        process.end()


def give_back(process: EngineProcess, is_quick: bool = False) -> None:
    """Keep a process for the next call, unless it has ended or there are enough."""
    with _lock:
        # Whether it is still alive is asked when it is borrowed: each time costs a system call.
        if not process.is_ended and process.owner == os.getpid() and len(_idle[is_quick]) < _KEPT:
            _idle[is_quick].append(process)
            return
    process.end()


def close() -> None:
    """End the processes that nobody uses."""
    for idle in _idle.values():
        while (process := idle.pop() if idle else None) is not None:
            process.end()


atexit.register(close)
