"""The words for what goes wrong when evalloom itself cannot go on."""

from __future__ import annotations


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
