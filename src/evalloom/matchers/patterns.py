"""Regular expressions that users write: compiled once, and stopped when one would search for ever."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType

from evalloom.model import quote

_SECONDS = 1.0
"""How much processor time one search may take."""
_SHORT = 5_000
_REPEAT = re.compile(r"[*+{]")


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
    with _stopwatch(pattern):
        return found.search(text) is not None


@lru_cache(maxsize=4096)
def _is_risky(pattern: str) -> bool:
    """Whether a search may take time beyond the square of the text's length: two repeats that can trade characters."""
    return len(_REPEAT.findall(pattern)) > 1


@contextmanager
def _stopwatch(pattern: str) -> Iterator[None]:
    """Stop a search that backtracks without end.

    Python looks for signals while it searches, and a timer of processor time disturbs nobody. There are none outside
    the main thread and on Windows; a search there runs on its own risk.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        yield
    except TimeoutError:
        raise BadPattern(f"the search for {quote(pattern)} was stopped after {_SECONDS:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
