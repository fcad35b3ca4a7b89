"""The exceptions of evalloom."""

from __future__ import annotations


class EvalloomError(Exception):
    """An error that ends the command; shown once with its code, without a traceback."""

    def __init__(self, code: str, message: str, exit_code: int = 3) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


def usage_error(code: str, message: str) -> EvalloomError:
    """Return an error about how the command was called (exit code 2)."""
    return EvalloomError(code, message, exit_code=2)


class CallError(Exception):
    """A call to a target or an llm failed: an error of that one run, never of the batch.

    `is_transient` means that a retry may help; `retry_after` is the number of seconds that the server asks to wait.
    """

    def __init__(self, code: str, message: str, is_transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_transient = is_transient
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class BatchStop(BaseException):
    """The batch ends early: unfinished runs are not counted, so that it can be resumed.

    Not an Exception, so that a function under test with `except Exception` does not turn it into a result.
    """

    code = ""


class BudgetSpent(BatchStop):
    """The budget of the batch is used up: nothing more is sent."""


class TargetUnavailable(BatchStop):
    """The server under test cannot be reached: every further case would meet the same error."""

    code = "target_unavailable"


class LlmUnavailable(BatchStop):
    """An llm does not answer: nothing more is sent to it."""

    code = "llm_unavailable"
