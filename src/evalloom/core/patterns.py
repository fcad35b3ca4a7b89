"""Regular expressions that users write: compiled once, and stopped when one would search for ever."""

from __future__ import annotations

import atexit
import json
import re
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from evalloom.core.text import quote

if TYPE_CHECKING:
    from subprocess import Popen

SECONDS = 1.0
"""How long a search may take where nothing else is said: of processor time wherever that can be measured."""
_SHORT = 5_000
_CHOICE = re.compile(r"[*+{?|]")
_HAS_TIMERS = hasattr(signal, "setitimer")
_PATIENCE = 10
_Spans = Sequence[Sequence[int]]
"""Where the whole and each group begin and end; -1 for a group that has no part in it."""


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


class Found(Struct, frozen=True):
    """The first place that fits a pattern: all of it, and its groups, by place and by name."""

    whole: str
    groups: tuple[str | None, ...]
    named: dict[str, str | None]


def search(pattern: str, text: str, flags: int = 0, seconds: float = SECONDS) -> bool:
    """Whether the pattern stands somewhere in the text. Raises BadPattern."""
    return _spans(pattern, text, flags, seconds) is not None


def find(pattern: str, text: str, flags: int = 0, seconds: float = SECONDS) -> Found | None:
    """The first place in the text that fits the pattern. Raises BadPattern."""
    spans = _spans(pattern, text, flags, seconds)
    if spans is None:
        return None
    (start, end), *inner = spans
    groups = tuple(None if first < 0 else text[first:last] for first, last in inner)
    named = {name: groups[number - 1] for name, number in compiled(pattern, flags).groupindex.items()}
    return Found(text[start:end], groups, named)


def _spans(pattern: str, text: str, flags: int, seconds: float) -> _Spans | None:
    ready = compiled(pattern, flags)
    if len(text) <= _SHORT and not _is_risky(pattern):
        found = ready.search(text)
    elif _has_signals():
        found = _timed(ready, text, seconds)
    else:
        return apart.search(ready, text, seconds)
    return None if found is None else found.regs


@lru_cache(maxsize=4096)
def _is_risky(pattern: str) -> bool:
    """Whether a search may take time beyond the square of the text's length; one bare repeat, as in a+b, cannot."""
    choices = _CHOICE.findall(pattern)
    return len(choices) > 1 or (bool(choices) and ("(" in pattern or "|" in pattern))


def _has_signals() -> bool:
    """Whether a search can be interrupted here: there are no signals outside the main thread, and few on Windows."""
    return _HAS_TIMERS and threading.current_thread() is threading.main_thread()


def _timed(ready: re.Pattern[str], text: str, seconds: float) -> re.Match[str] | None:
    """Stops a search that backtracks without end.

    Python looks for signals while it searches, and a timer of processor time disturbs nobody.
    """
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            return ready.search(text)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TimeoutError:
        raise _stopped(ready.pattern, seconds) from None
    finally:
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _stopped(pattern: str, seconds: float) -> BadPattern:
    return BadPattern(f"the search for {quote(pattern)} was stopped after {seconds:g} s")


class _Apart:
    """Searches in a process of its own, which can be ended where a search cannot be interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Popen[str] | None = None

    def search(self, ready: re.Pattern[str], text: str, seconds: float) -> _Spans | None:
        """Where the pattern stands in the text. Raises BadPattern."""
        with self._lock:
            try:
                process = self._started()
                answer = self._ask(process, json.dumps([ready.pattern, text, ready.flags, seconds]), seconds)
            except OSError as fault:
                raise BadPattern(f"the search for {quote(ready.pattern)} could not be started: {fault}") from None
            if not answer:
                self.end()
                raise _stopped(ready.pattern, seconds)
            return cast("_Spans | None", json.loads(answer))

    def _started(self) -> Popen[str]:
        if self._process is None or self._process.poll() is not None:
            # Heavy to import, and seldom needed.
            from subprocess import DEVNULL, PIPE, Popen

            self.end()
            command = [sys.executable, "-I", "-S", "-c", _SEARCHER]
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)
            assert self._process.stdout is not None
            # Its first line says that it is there: its start must not count as searching.
            self._process.stdout.readline()
        return self._process

    def _ask(self, process: Popen[str], question: str, seconds: float) -> str:
        assert process.stdin is not None and process.stdout is not None
        # It has a timer of its own where there are signals; on a busy machine ours would hit searches that only waited.
        watch = threading.Timer(seconds * (_PATIENCE if _HAS_TIMERS else 1), process.kill)
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
import json, re, signal, sys, warnings
warnings.simplefilter("ignore")
watch = getattr(signal, "setitimer", None)
print(flush=True)
for line in sys.stdin:
    pattern, text, flags, seconds = json.loads(line)
    # Nobody handles this signal here, so it ends the process.
    watch and watch(signal.ITIMER_VIRTUAL, seconds)
    found = re.search(pattern, text, flags)
    watch and watch(signal.ITIMER_VIRTUAL, 0)
    print(json.dumps(found and found.regs), flush=True)
"""
apart = _Apart()
atexit.register(apart.end)
