"""Runs untrusted Python code in a process of its own that can do next to nothing, and reads what it gives back.

What comes back is as little to be trusted as the code itself: it is read with limits, and believed to be nothing but
the code's own results.
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
from evalloom.core.sandbox.system_calls import filter_for, knows

_INSIDE = Path(__file__).with_name("inside.py")
_DYING_S = 5.0
_STARTING_S = 30.0
_NO_MEMORY = 77
"""The exit code by which the process says so; it cannot be counted on to write a message then."""
_LOOK_S = 0.1
"""How often its scratch folder is looked into."""
_MOST_FILES = 1_000
_LARGE = 2**20
"""From what size on answers are read in a thread."""
_PRINTED = 8_000
_MESSAGE = 600
_LEVELS = 54
"""What is given back must leave room for what it is written into: all in all 254 levels can be written."""
# Libraries that would start a thread for each core give up when they may not.
_ENVIRONMENT = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


class Limits(Struct, frozen=True):
    """How much a process may use, for all of its calls together; `wall_s` counts from when it is shut in."""

    cpu_s: float = 10.0
    wall_s: float = 20.0
    memory_bytes: int = 512 * 2**20
    output_bytes: int = 16 * 2**20
    file_bytes: int = 16 * 2**20
    """The size of each file that it writes."""
    scratch_bytes: int = 64 * 2**20
    """The size of all files in its scratch folder; it is looked into from time to time, so a little more may pass."""


class Call(Struct, frozen=True):
    """What a function is called with: `named` by keyword, those that it takes; `whole` or `ordered` instead."""

    named: Record = {}
    whole: Any = None
    """For the one required parameter of a function that is none of the names."""
    ordered: tuple[Any, ...] = ()
    """By place, as many as the function takes; nothing else is given then."""


class Done(Struct, frozen=True):
    """What became of one call. `error` is one line: `NameError: name 'analyze' is not defined (line 1)`."""

    value: Any = None
    error: str = ""
    printed: str = ""


class Code(Struct, frozen=True):
    """The code to run: a `text` with the names its function may have, or a `reference` as `module:function`.

    Without a function of these names the only public one is meant. A reference is looked up in `folder`, whose modules
    and packages can be read inside, and then among the installed packages.
    """

    text: str = ""
    entry: tuple[str, ...] = ()
    reference: str = ""
    folder: Path | None = None


class _Answer(Struct, forbid_unknown_fields=True):
    """One line from inside."""

    value: Any = None
    error: str = ""
    printed: str = ""
    ready: bool = False
    refused: str = ""
    bad_code: str = ""


DEFAULT_LIMITS = Limits()
_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_code(code: Code, calls: Sequence[Call], limits: Limits = DEFAULT_LIMITS) -> list[Done]:
    """The results of calls to one function, made one after another in one process, which has ended when this returns.

    Raises CallError when there is no result for all of them: code_error, code_timeout, code_memory, code_output,
    code_files, code_crashed, or sandbox_failed when the code did not run because it could not be shut in.
    """
    if not calls:
        return []
    if _unfit():
        raise CallError("sandbox_failed", _unfit())
    request = _request(code, calls)
    async with _place():
        try:
            scratch = Path(tempfile.mkdtemp(prefix="evalloom-code-")).resolve()
        except OSError as fault:
            raise CallError("sandbox_failed", f"no folder for the code can be made: {fault}") from None
        try:
            ended = await _run(_command(code, scratch, limits), scratch, request, limits)
        finally:
            # In a thread, because code can leave a great many files; shielded, because it must be done.
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))
    if len(ended.given) < _LARGE:
        return _results(ended, len(calls), limits)
    return await asyncio.to_thread(_results, ended, len(calls), limits)


@lru_cache(maxsize=1)
def why_unavailable() -> str:
    """Why code cannot be shut in on this machine; empty where it can. Tried once, with a real process."""
    if _unfit():
        return _unfit()
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
        except (OSError, subprocess.TimeoutExpired) as fault:
            return f"a process cannot be started: {fault}"
    ended = _Ended(done.stdout, done.returncode)
    try:
        return _why_not_shut_in(ended) or "".join(one.error for one in _results(ended, 1, DEFAULT_LIMITS))
    except CallError as fault:
        return fault.message


def _unfit() -> str:
    if sys.platform != "linux":
        return f"Linux with Landlock is needed, this is {sys.platform}"
    if not knows(platform.machine()):
        return f"an x86_64 or aarch64 processor is needed, this is {platform.machine()}"
    return ""


# -- the process -----------------------------------------------------------------------------------------


def _place() -> asyncio.Semaphore:
    """A place among the processes that run at once: more than there are processors would only wait for each other."""
    loop = asyncio.get_running_loop()
    if loop not in _places:
        _places[loop] = asyncio.Semaphore((os.cpu_count() or 1) + 2)
    return _places[loop]


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
        # Half of a surrogate pair, and numbers of more than 64 bits.
        return json.dumps(request).encode()
    except (TypeError, ValueError, RecursionError) as fault:
        raise CallError("unusable_input", f"an input of the code is no JSON: {fault}") from None


def _call(call: Call) -> Record:
    # The whole is often all of the inputs or one of them, a list of 10,000 items: it goes over once.
    same = call.whole is call.named or next((name for name, value in call.named.items() if value is call.whole), False)
    return {"named": call.named, "whole": None if same else call.whole, "same": same, "ordered": call.ordered}


def _command(code: Code, scratch: Path, limits: Limits) -> list[str]:
    read, listed = readable(code.reference, code.folder)
    told = {
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
    # -I and -S: nothing of the user's environment, working folder or site-packages has a say in how it starts.
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_INSIDE), json.dumps(told)]


def _environment() -> dict[str, str]:
    """Nothing of ours, but for what some installations need for Python to start at all."""
    found = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return _ENVIRONMENT | found


class _Ended(Struct, frozen=True):
    """What a process gave back, and how it ended; `stopped` is why we ended it ourselves, if we did."""

    given: bytes
    exit_code: int
    stopped: str = ""


async def _run(command: list[str], scratch: Path, request: bytes, limits: Limits) -> _Ended:
    """Starts the process and waits for its end, which comes within the limits; it is over when this returns."""
    loop = asyncio.get_running_loop()
    try:
        transport, talk = await loop.subprocess_exec(
            lambda: _Talk(limits.output_bytes),
            *command,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as fault:
        raise CallError("sandbox_failed", f"a process cannot be started: {fault.strerror}") from None
    stopped = ""
    try:
        _feed(transport, request)
        # The code's time begins when it is shut in: on a busy machine the start may take longer than the code is given.
        async with asyncio.timeout(_STARTING_S):
            await talk.started
        _look_into(scratch, limits.scratch_bytes, talk.ended)
        async with asyncio.timeout(limits.wall_s):
            stopped = await talk.ended
    except TimeoutError:
        stopped = "code_timeout"
    finally:
        if not talk.exited.done():
            _kill_group(transport.get_pid())
        # The loop must hear of the end itself: closing before that would take it away from it.
        await asyncio.wait([talk.exited], timeout=_DYING_S)
        transport.close()
    return _Ended(bytes(talk.given), transport.get_returncode() or 0, stopped)


class _Talk(asyncio.SubprocessProtocol):
    """Hears what the process gives back, up to a limit, until it has ended."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.given = bytearray()
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._limit = limit
        self._awaited = {"stdout", "exit"}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._start()
        if len(self.given) + len(data) <= self._limit:
            self.given += data
        elif not self.ended.done():
            self.ended.set_result("code_output")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._have("stdout")

    def process_exited(self) -> None:
        self.exited.set_result(None)
        self._start()
        self._have("exit")

    def _start(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def _have(self, awaited: str) -> None:
        self._awaited.discard(awaited)
        if not self._awaited and not self.ended.done():
            self.ended.set_result("")


def _feed(transport: asyncio.SubprocessTransport, request: bytes) -> None:
    stdin = cast(asyncio.WriteTransport | None, transport.get_pipe_transport(0))
    if stdin is not None and not stdin.is_closing():
        stdin.write(request)
        stdin.close()


def _look_into(scratch: Path, limit: int, ended: asyncio.Future[str]) -> None:
    """Ends it, now or some time later, when it has filled its scratch folder: the system limits only single files."""
    if ended.done():
        return
    if _is_full(scratch, limit):
        ended.set_result("code_files")
        return
    asyncio.get_running_loop().call_later(_LOOK_S, _look_into, scratch, limit, ended)


def _is_full(scratch: Path, limit: int) -> bool:
    size = 0
    # Only plain files can be made there. They may be gone again by now.
    with suppress(OSError), os.scandir(scratch) as entries:
        for number, entry in enumerate(entries, 1):
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_size
            if size > limit or number > _MOST_FILES:
                return True
    return False


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# -- what came back --------------------------------------------------------------------------------------


def _results(ended: _Ended, expected: int, limits: Limits) -> list[Done]:
    """The results, where all of them are there and the process came to its own end; else why not."""
    if why := _why_not_shut_in(ended):
        raise CallError("sandbox_failed", f"code cannot be isolated here: {why}")
    if ended.stopped or ended.exit_code:
        raise _why_ended(ended, limits)
    _, *lines, rest = ended.given.split(b"\n")
    with _uncollected():
        answers = [_decoded(line) for line in lines[: expected + 1]]
    last = answers[-1] if answers else None
    if last is not None and last.bad_code:
        raise CallError("code_error", _shown(last.bad_code))
    if len(lines) != expected or rest:
        raise _why_ended(ended, limits)
    return [_done(answer) for answer in answers]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for garbage: among millions of new lists that takes longer than to read them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _why_not_shut_in(ended: _Ended) -> str:
    """Why the code did not get to run at all; empty when it did."""
    line, end, _ = ended.given.partition(b"\n")
    first = _decoded(line) if end else None
    if first is not None and first.ready:
        return ""
    if first is not None:
        return _shown(first.refused)
    return "the process was too slow to start" if ended.stopped else f"the process ended at once ({_how(ended)})"


def _why_ended(ended: _Ended, limits: Limits) -> CallError:
    """What to say of a process that ended before all results were there."""
    ended_by = -ended.exit_code
    if ended.stopped == "code_output":
        return CallError("code_output", f"the code gave back more than {limits.output_bytes / 2**20:g} MiB")
    if ended.stopped == "code_files":
        room = f"{limits.scratch_bytes / 2**20:g} MiB or {_MOST_FILES:,} files"
        return CallError("code_files", f"the code wrote more than {room} into its scratch folder")
    if ended.stopped == "code_timeout":
        return CallError("code_timeout", f"the code gave no answer within {limits.wall_s:g} s")
    if ended_by in (signal.SIGPROF, signal.SIGXCPU):
        return CallError("code_timeout", f"the code used more than {limits.cpu_s:g} s of CPU time")
    # Killed by nobody here: the kernel does so when there is no memory left.
    if ended.exit_code == _NO_MEMORY or ended_by == signal.SIGKILL:
        return CallError("code_memory", f"the code needed more than {limits.memory_bytes / 2**20:g} MiB of memory")
    return CallError("code_crashed", f"the code ended its process ({_how(ended)}) before all results were there")


def _how(ended: _Ended) -> str:
    with suppress(ValueError):
        return signal.Signals(-ended.exit_code).name
    return f"exit code {ended.exit_code}"


def _done(answer: _Answer | None) -> Done:
    if answer is None or answer.ready or answer.refused or answer.bad_code:
        raise CallError("code_crashed", "what the code gave back is not one line of JSON for each call")
    error = _shown(answer.error)
    return Done(None if error else answer.value, error, answer.printed[:_PRINTED])


def _decoded(line: bytes) -> _Answer | None:
    """One line, or None where it is none of ours or holds what could not be written anywhere."""
    try:
        answer = _read(line)
        orjson.dumps(reduce(lambda inner, _: [inner], range(_LEVELS), answer.value))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return answer


_read: Callable[[bytes], _Answer] = msgspec.json.Decoder(_Answer).decode


def _shown(text: str) -> str:
    """A text from inside for a message: one line, not too long, with nothing that could drive a terminal."""
    return "".join(char if char.isprintable() else " " for char in text[:_MESSAGE])
