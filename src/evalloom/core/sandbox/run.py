"""Runs untrusted Python code in an isolated process, and reads its results.

The results are as untrusted as the code: they are read with limits, and used as nothing but results of the code.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
import orjson
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Record
from evalloom.core.sandbox.reach import readable, site_packages
from evalloom.core.sandbox.system_calls import filter_for, is_supported

_INSIDE = Path(__file__).with_name("inside.py")
_DYING_S = 5.0
_STARTING_S = 30.0
_NO_MEMORY = 77
"""The exit code for lack of memory, because the process may be unable to write a message then."""
_SCRATCH_CHECK_S = 0.1
"""The interval between checks of the scratch folder."""
_MOST_FILES = 1_000
_LARGE = 2**20
"""Answers from this size on are decoded in a thread."""
_PRINTED = 8_000
_MESSAGE = 600
_LEVELS = 54
"""Levels of nesting that a result must leave free for the objects around it; orjson writes 254 in total."""
# Libraries that start a thread for each core fail where threads are not allowed.
_ENVIRONMENT = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class Limits(Struct, frozen=True):
    """The limits of a process, for all of its calls together; `wall_s` counts from when it is isolated."""

    cpu_s: float = 10.0
    wall_s: float = 20.0
    memory_bytes: int = 512 * 2**20
    output_bytes: int = 16 * 2**20
    file_bytes: int = 16 * 2**20
    """The largest size of one file."""
    scratch_bytes: int = 64 * 2**20
    """The size of all files in the scratch folder; checked at intervals, so the code may briefly exceed it."""


class Call(Struct, frozen=True):
    """The arguments of a call: `named` by keyword, as far as the function takes them; or `whole` or `ordered`."""

    named: Record = {}
    whole: Any = None
    """The value of the only required parameter, if its name is not in `named`."""
    ordered: tuple[Any, ...] = ()
    """Positional arguments, as many as the function takes; excludes the others."""


class Done(Struct, frozen=True):
    """The result of one call. `error` is one line: `NameError: name 'analyze' is not defined (line 1)`."""

    value: Any = None
    error: str = ""
    printed: str = ""


class Code(Struct, frozen=True):
    """The code to run: a `text` with the names its function may have, or a `reference` as `module:function`.

    Without a function of these names it is the only public one. A reference is looked up in `folder`, whose modules and
    packages the process can read, and then in the installed packages.
    """

    text: str = ""
    entry: tuple[str, ...] = ()
    reference: str = ""
    folder: Path | None = None


class _Answer(Struct, forbid_unknown_fields=True):
    """One line of output of the process."""

    value: Any = None
    error: str = ""
    printed: str = ""
    ready: bool = False
    refused: str = ""
    bad_code: str = ""


DEFAULT_LIMITS = Limits()
_process_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_code(code: Code, calls: Sequence[Call], limits: Limits = DEFAULT_LIMITS) -> list[Done]:
    """Call one function several times in one process, and return the results after the process has ended.

    Raises CallError if a result is missing: code_error, code_timeout, code_memory, code_output, code_files,
    code_crashed, or sandbox_failed if the code did not run because it could not be isolated.
    """
    if not calls:
        return []
    if _unsupported():
        raise CallError("sandbox_failed", _unsupported())
    request = _request(code, calls)
    loop = asyncio.get_running_loop()
    if loop not in _process_limits:
        # More processes than processors would only wait for each other.
        _process_limits[loop] = asyncio.Semaphore((os.cpu_count() or 1) + 2)
    async with _process_limits[loop]:
        try:
            scratch = Path(tempfile.mkdtemp(prefix="evalloom-code-")).resolve()
        except OSError as error:
            raise CallError("sandbox_failed", f"no folder for the code can be made: {error}") from None
        try:
            ended = await _run(_command(code, scratch, limits), scratch, request, limits)
        finally:
            # In a thread, because code can leave many files; shielded, because a cancelled call must clean up too.
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))
    if len(ended.output) < _LARGE:
        return _results(ended, len(calls), limits)
    return await asyncio.to_thread(_results, ended, len(calls), limits)


@lru_cache(maxsize=1)
def why_unavailable() -> str:
    """Return why code cannot be isolated on this machine; empty if it can. Tested once, with a real process."""
    if _unsupported():
        return _unsupported()
    code = Code("def nothing():\n    return None\n")
    with tempfile.TemporaryDirectory(prefix="evalloom-code-") as scratch:
        command = _command(code, Path(scratch).resolve(), DEFAULT_LIMITS)
        try:
            done = subprocess.run(
                command,
                input=_request(code, [Call()]),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=scratch,
                env=_environment(),
                timeout=_STARTING_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"a process cannot be started: {error}"
    ended = _Ended(done.stdout, done.returncode)
    try:
        return _isolation_error(ended) or "".join(result.error for result in _results(ended, 1, DEFAULT_LIMITS))
    except CallError as error:
        return error.message


def _unsupported() -> str:
    if sys.platform != "linux":
        return f"Linux with Landlock is needed, this is {sys.platform}"
    if not is_supported(platform.machine()):
        return f"an x86_64 or aarch64 processor is needed, this is {platform.machine()}"
    return ""


# -- the process -----------------------------------------------------------------------------------------


def _request(code: Code, calls: Sequence[Call]) -> bytes:
    before = [] if code.folder is None else [str(code.folder.resolve())]
    request = {
        "text": code.text,
        "entry": code.entry,
        "reference": code.reference,
        "before": before,
        "after": site_packages() if code.reference else [],
        "calls": [_call(call) for call in calls],
    }
    try:
        return orjson.dumps(request)
    except TypeError:
        pass
    try:
        # orjson refuses half of a surrogate pair, and integers of more than 64 bits.
        return json.dumps(request).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError("unusable_input", f"an input of the code is not JSON: {error}") from None


def _call(call: Call) -> Record:
    # `whole` is often the inputs or one of them, such as a list of 10,000 items: send it once.
    same = call.whole is call.named or next((name for name, value in call.named.items() if value is call.whole), False)
    return {"named": call.named, "whole": None if same else call.whole, "same": same, "ordered": call.ordered}


def _command(code: Code, scratch: Path, limits: Limits) -> list[str]:
    read, listed = readable(code.reference, code.folder)
    isolation = {
        "limits": {
            "cpu_s": max(limits.cpu_s, 0.001),
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
        },
        "scratch": str(scratch),
        "read": read,
        "list": listed,
        "parent": os.getpid(),
        "filter": filter_for(platform.machine()).hex(),
    }
    # -I and -S: ignore the user's environment, working folder and site-packages at startup.
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_INSIDE), json.dumps(isolation)]


def _environment() -> dict[str, str]:
    """Return an environment without our variables, except for one that some installations of Python need to start."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return _ENVIRONMENT | needed


class _Ended(Struct, frozen=True):
    """The output and exit code of a process; `stopped` is the reason if we killed it."""

    output: bytes
    exit_code: int
    stopped: str = ""


async def _run(command: list[str], scratch: Path, request: bytes, limits: Limits) -> _Ended:
    """Start the process and wait for its end; kill it when it exceeds a limit."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: _OutputProtocol(limits.output_bytes),
            *command,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise CallError("sandbox_failed", f"a process cannot be started: {error.strerror}") from None
    stopped = ""
    try:
        stdin = cast(asyncio.WriteTransport | None, transport.get_pipe_transport(0))
        if stdin is not None and not stdin.is_closing():
            stdin.write(request)
            stdin.close()
        # The time limit begins after the isolation: on a busy machine the start may take longer than the limit.
        async with asyncio.timeout(_STARTING_S):
            await protocol.started
        _watch_scratch(scratch, limits.scratch_bytes, protocol.ended)
        async with asyncio.timeout(limits.wall_s):
            stopped = await protocol.ended
    except TimeoutError:
        stopped = "code_timeout"
    finally:
        if not protocol.exited.done():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        # Wait until the loop has seen the exit: it does not see it after the transport is closed.
        await asyncio.wait([protocol.exited], timeout=_DYING_S)
        transport.close()
    return _Ended(bytes(protocol.output), transport.get_returncode() or 0, stopped)


class _OutputProtocol(asyncio.SubprocessProtocol):
    """Collects the output of the process, up to a limit, until it has ended."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._limit = limit
        self._awaited = {"stdout", "exit"}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._start()
        if len(self.output) + len(data) <= self._limit:
            self.output += data
        elif not self.ended.done():
            self.ended.set_result("code_output")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._mark_finished("stdout")

    def process_exited(self) -> None:
        self.exited.set_result(None)
        self._start()
        self._mark_finished("exit")

    def _start(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def _mark_finished(self, awaited: str) -> None:
        self._awaited.discard(awaited)
        if not self._awaited and not self.ended.done():
            self.ended.set_result("")


def _watch_scratch(scratch: Path, limit: int, ended: asyncio.Future[str]) -> None:
    """End the process when its scratch folder is full, checked at intervals: the kernel limits single files only."""
    if ended.done():
        return
    if _is_full(scratch, limit):
        ended.set_result("code_files")
        return
    asyncio.get_running_loop().call_later(_SCRATCH_CHECK_S, _watch_scratch, scratch, limit, ended)


def _is_full(scratch: Path, limit: int) -> bool:
    size = 0
    # The code can create plain files only, and may delete them meanwhile.
    with suppress(OSError), os.scandir(scratch) as entries:
        for number, entry in enumerate(entries, 1):
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_size
            if size > limit or number > _MOST_FILES:
                return True
    return False


# -- the results -----------------------------------------------------------------------------------------


def _results(ended: _Ended, expected: int, limits: Limits) -> list[Done]:
    """Return the results if all are present and the process ended normally. Raises CallError."""
    if why := _isolation_error(ended):
        raise CallError("sandbox_failed", f"code cannot be isolated here: {why}")
    if ended.stopped or ended.exit_code:
        raise _why_ended(ended, limits)
    _, *lines, rest = ended.output.split(b"\n")
    with _without_gc():
        answers = [_decoded(line) for line in lines[: expected + 1]]
    last = answers[-1] if answers else None
    if last is not None and last.bad_code:
        raise CallError("code_error", _shown(last.bad_code))
    if len(lines) != expected or rest:
        raise _why_ended(ended, limits)
    return [_done(answer) for answer in answers]


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the cycle collector: with millions of new lists it takes longer than decoding them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _isolation_error(ended: _Ended) -> str:
    """Return why the code did not run at all; empty if it did."""
    line, end, _ = ended.output.partition(b"\n")
    first = _decoded(line) if end else None
    if first is not None and first.ready:
        return ""
    if first is not None:
        return _shown(first.refused)
    return "the process was too slow to start" if ended.stopped else f"the process ended at once ({_how(ended)})"


def _why_ended(ended: _Ended, limits: Limits) -> CallError:
    """Return the error of a process that ended before all results were written."""
    ended_by = -ended.exit_code
    if ended.stopped == "code_output":
        return CallError("code_output", f"the code returned more than {limits.output_bytes / 2**20:g} MiB")
    if ended.stopped == "code_files":
        room = f"{limits.scratch_bytes / 2**20:g} MiB or {_MOST_FILES:,} files"
        return CallError("code_files", f"the code wrote more than {room} into its scratch folder")
    if ended.stopped == "code_timeout":
        return CallError("code_timeout", f"the code gave no answer within {limits.wall_s:g} s")
    if ended_by in (signal.SIGPROF, signal.SIGXCPU):
        return CallError("code_timeout", f"the code used more than {limits.cpu_s:g} s of CPU time")
    # We did not kill it: the kernel does so when there is no memory left.
    if ended.exit_code == _NO_MEMORY or ended_by == signal.SIGKILL:
        return CallError("code_memory", f"the code needed more than {limits.memory_bytes / 2**20:g} MiB of memory")
    return CallError("code_crashed", f"the code ended its process ({_how(ended)}) before all results were written")


def _how(ended: _Ended) -> str:
    with suppress(ValueError):
        return signal.Signals(-ended.exit_code).name
    return f"exit code {ended.exit_code}"


def _done(answer: _Answer | None) -> Done:
    if answer is None or answer.ready or answer.refused or answer.bad_code:
        raise CallError("code_crashed", "the output of the code is not one line of JSON for each call")
    message = _shown(answer.error)
    return Done(None if message else answer.value, message, answer.printed[:_PRINTED])


def _decoded(line: bytes) -> _Answer | None:
    """Decode one line; None if it is not an answer, or if its value cannot be written as JSON."""
    try:
        answer = _read(line)
        orjson.dumps(reduce(lambda inner, _: [inner], range(_LEVELS), answer.value))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return answer


_read: Callable[[bytes], _Answer] = msgspec.json.Decoder(_Answer).decode


def _shown(text: str) -> str:
    """Return a text of the process for a message: one short line without control characters."""
    return "".join(char if char.isprintable() else " " for char in text[:_MESSAGE])
