"""Regular expressions that users write: compiled once, and stopped when one would search for ever."""

from __future__ import annotations

import atexit
import json
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import FrameType

from evalloom.model import quote

_SECONDS = 1.0
"""How long one search may take: of processor time where it is this process that searches."""
_SHORT = 5_000
_CHOICE = re.compile(r"[*+{?|]")


class BadPattern(Exception):
    """The pattern does not compile, or its search was stopped; the message says which."""


@lru_cache(maxsize=4096)
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern. Raises BadPattern."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError, ValueError) as fault:
        raise BadPattern(
            f"expected a regular expression, got {quote(pattern)}: {fault or type(fault).__name__}"
        ) from None


def search(pattern: str, text: str, flags: int = 0) -> bool:
    """Whether the pattern stands somewhere in the text. Raises BadPattern."""
    found = compiled(pattern, flags)
    if len(text) <= _SHORT and not _is_risky(pattern):
        return found.search(text) is not None
    if not _has_signals():
        return apart.search(pattern, text, flags)
    with _stopwatch(pattern):
        return found.search(text) is not None


@lru_cache(maxsize=4096)
def _is_risky(pattern: str) -> bool:
    """Whether a search may take time beyond the square of the text's length; one bare repeat, as in a+b, cannot."""
    choices = _CHOICE.findall(pattern)
    return len(choices) > 1 or (bool(choices) and ("(" in pattern or "|" in pattern))


def _has_signals() -> bool:
    """Whether a search can be interrupted here: there are no signals outside the main thread, and few on Windows."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def _stopwatch(pattern: str) -> Iterator[None]:
    """Stop a search that backtracks without end.

    Python looks for signals while it searches, and a timer of processor time disturbs nobody.
    """
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        yield
    except TimeoutError:
        raise _stopped(pattern) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _stopped(pattern: str) -> BadPattern:
    return BadPattern(f"the search for {quote(pattern)} was stopped after {_SECONDS:g} s")


class _Apart:
    """Searches in a process of its own, which can be ended where a search cannot be interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def search(self, pattern: str, text: str, flags: int) -> bool:
        """Whether the pattern stands in the text. Raises BadPattern."""
        with self._lock:
            try:
                process = self._started()
                answer = self._ask(process, json.dumps([pattern, text, flags]))
            except OSError as fault:
                raise BadPattern(f"the search for {quote(pattern)} could not be started: {fault}") from None
            if not answer:
                self.end()
                raise _stopped(pattern)
            return answer == "1\n"

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            pipe = subprocess.PIPE
            command = [sys.executable, "-I", "-S", "-c", _SEARCHER]
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
            assert self._process.stdout is not None
            # Its first line says that it is there: its start must not count as searching.
            self._process.stdout.readline()
        return self._process

    def _ask(self, process: subprocess.Popen[str], question: str) -> str:
        assert process.stdin is not None and process.stdout is not None
        watch = threading.Timer(_SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        finally:
            watch.cancel()

    def end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()


_SEARCHER = """
import json, re, sys, warnings
warnings.simplefilter("ignore")
print(flush=True)
for line in sys.stdin:
    pattern, text, flags = json.loads(line)
    print(int(re.search(pattern, text, flags) is not None), flush=True)
"""
apart = _Apart()
atexit.register(apart.end)
