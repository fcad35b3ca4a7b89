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
