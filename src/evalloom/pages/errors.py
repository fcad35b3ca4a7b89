"""The error of an HTTP request."""

from __future__ import annotations

from typing import Any

from evalloom.core.model import Record


class RequestError(Exception):
    """A request that cannot be fulfilled: a code, a message and details such as the place of the error."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Record = details
