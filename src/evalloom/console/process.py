"""The process of a command: stdout is for evalloom alone, and no thread of users' code keeps it from ending."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TextIO, cast

from evalloom.console.streams import READER_GONE, wrapped

_last_s = 3.0
"""How long threads and exit handlers of users' code may take after a command has ended."""


exit_process = os._exit
"""Ends the process without a word; `os._exit` itself is that of users' code."""


def end_at_once() -> None:
    """Do not wait for users' code when the command has ended: the user has interrupted twice."""
    global _last_s
    _last_s = 0.2


_skips_cleanup = False


def skip_cleanup() -> None:
    """End without exit handlers: where memory is short, glibc aborts a process whose threads end one by one."""
    global _skips_cleanup
    _skips_cleanup = True


class _Stdout:
    """Writes of the main thread go to our stdout; what other threads write, which is users' code, goes to stderr."""

    def __init__(self, ours: TextIO) -> None:
        self._ours = ours
        self._main = threading.main_thread()

    def __getattr__(self, name: str) -> Any:
        is_ours = threading.current_thread() is self._main
        return getattr(self._ours if is_ours else sys.stderr, name)


def run_process(command: Callable[[], int]) -> NoReturn:
    """Run a command and end the process with its exit code."""
    stdout = sys.stdout
    ours = _take_stdout()
    os._exit = _reported_exit(os.getpid())  # type: ignore[assignment]
    if not faulthandler.is_enabled():
        with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
            # A crash in C, as in a broken extension module, says where it was instead of nothing.
            faulthandler.enable(2, all_threads=False)
    code = 3
    try:
        code = command()
    finally:
        if ours is not None:
            code = _flush(ours, code)
            # From here on only exit handlers print, and those are users' code; its descriptor is stderr.
            sys.stdout = stdout
        os._exit = exit_process
        if _skips_cleanup:
            exit_process(code)
        is_ending = threading.Event()
        try:
            threading.Thread(target=_end, args=(code, is_ending), name="evalloom-exit", daemon=True).start()
        except RuntimeError:  # no memory for a thread
            exit_process(code)
        # Before Python waits for threads. A caller that catches SystemExit goes on instead, and nothing must end it.
        threading._register_atexit(_begin_to_end, code, is_ending)  # type: ignore[attr-defined]
    sys.exit(code)


def _begin_to_end(code: int, is_ending: threading.Event) -> None:
    # An exit handler of users' code that ends the process does not make a success of a failure.
    process = os.getpid()
    os._exit = lambda status: exit_process(status or code if os.getpid() == process else status)
    # Ctrl-C in this time ends the process without a traceback.
    signal.signal(signal.SIGINT, lambda number, frame: exit_process(code))
    is_ending.set()


def _take_stdout() -> TextIO | None:
    """Move stdout to a descriptor of our own, and let descriptor 1 be stderr, for users' code and its processes."""
    stdout = sys.stdout
    try:
        if stdout is None or sys.stderr is None or stdout.fileno() != 1:
            return None
        stdout.flush()
        own = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError):  # a closed descriptor: leave everything as it is
        return None
    ours = wrapped(stdout, own)
    sys.stdout = cast(TextIO, _Stdout(ours))
    return ours


def _flush(ours: TextIO, code: int) -> int:
    """Write the rest of our output, and return the exit code; `finish` has told why it cannot be written."""
    try:
        ours.flush()
        return code
    except OSError as error:
        # The stream is flushed once more when it is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), ours.fileno())
        return code or (READER_GONE if isinstance(error, BrokenPipeError) else 3)


def _reported_exit(process: int) -> Callable[[int], NoReturn]:
    """Return an `os._exit` that reports itself and is no success: users' code may call it in the middle of a run."""

    def exit_now(status: int) -> NoReturn:
        # A child that users' code forked may end as it likes.
        if os.getpid() == process:
            with suppress(Exception):
                message = f"the code under test ended the process with os._exit({status})"
                sys.stderr.write(f"evalloom: {message}. Finished runs are stored: --resume [process_ended]\n")
                sys.stderr.flush()
            status = status or 3
        exit_process(status)

    return exit_now


def _end(code: int, is_ending: threading.Event) -> None:
    """End the process if it does not end by itself: Python waits for threads of a pool, which may hang."""
    is_ending.wait()
    threading.Event().wait(_last_s)
    with suppress(Exception):
        sys.stderr.write("evalloom: ended, although threads of the code under test still run [threads_left]\n")
        sys.stderr.flush()
    exit_process(code)
