"""The words for what goes wrong when evalloom itself cannot go on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_WORD = 100
"""Comparing takes time that grows with the square of the length, and no name is that long."""


class EvalloomError(Exception):
    """We cannot go on: shown once, without a traceback, with its code."""

    def __init__(self, code: str, message: str, exit_code: int = 3) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


def usage_error(code: str, message: str) -> EvalloomError:
    """An error in how the command was called (exit code 2)."""
    return EvalloomError(code, message, exit_code=2)


class CallError(Exception):
    """A call to a target or an llm failed: an error of that one run, never of the batch.

    `is_transient` says that trying again may help; `retry_after` is how many seconds the other side asked us to wait.
    """

    def __init__(self, code: str, message: str, is_transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_transient = is_transient
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class BudgetSpent(BaseException):
    """The budget of this batch is used up: nothing more is sent, and what was not finished is not counted.

    No Exception, so that a function under test that falls back on any of them does not make a result of it.
    """


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message that proposes the nearest known word; empty when none is near."""
    guess = get_close_matches(word, list(known), 1, cutoff) if len(word) <= _LONGEST_WORD else []
    return f". Did you mean {guess[0]!r}?" if guess else ""
