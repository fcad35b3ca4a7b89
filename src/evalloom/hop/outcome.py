"""Reads the status that a hoplet or a verifier returns: one of the four outcomes, as text or as an Enum (HOP-9)."""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args

from evalloom.core.errors import CallError
from evalloom.core.model import Outcome
from evalloom.core.text import did_you_mean, quote

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_STATUS_WORDS = frozenset((
    "okay", "pass", "passed", "success", "succeeded", "successful", "done", "complete", "completed", "partial",
    "error", "err", "failed", "failure", "exception", "timeout", "invalid", "aborted", "cancelled", "skipped",
    "unknown", "unsure", "incomplete", "成功", "通过", "失败", "错误", "超时", "不确定", "信息不足",
))  # fmt: skip
"""Words that people use for a status; a tuple that starts with one is not data."""


def outcome_of(status: Any) -> Outcome | None:
    """Return the outcome that a status stands for; None if it stands for none.

    An Enum counts by its name, because `auto()` gives its members numbers, or else by its text. Case and separators do
    not matter: "lack of info" is LACK_OF_INFO.
    """
    if isinstance(status, Enum):
        return outcome_of(str(status.name)) or (outcome_of(status.value) if isinstance(status.value, str) else None)
    if not isinstance(status, str):
        return None
    word = "_".join(status.upper().replace("-", " ").replace("_", " ").split())
    return next((outcome for outcome in OUTCOMES if outcome == word), None)


def split_status(returned: Any) -> tuple[Outcome, Any]:
    """Split `(status, value)`; anything that is plainly a value has the status OK. Raises CallError.

    A failure must not pass for a value, so a tuple that may start with a status is data only if it cannot be one.
    """
    if isinstance(returned, Enum) and (outcome := outcome_of(returned)):
        return outcome, None
    if not isinstance(returned, tuple | list) or not returned:
        return "OK", returned
    first = returned[0]
    # JSON has no tuples, so a list is read as one only if its status is exact: ["ok", "fail"] may be two labels.
    is_tuple = isinstance(returned, tuple)
    is_exact = isinstance(first, Enum) or (isinstance(first, str) and first in OUTCOMES)
    outcome = outcome_of(first) if is_exact or is_tuple else None
    if outcome is not None and len(returned) == 2:
        return outcome, returned[1]
    if outcome is not None and is_tuple:
        raise _bad_status(f"expected (status, value), got {len(returned)} values after each other")
    if len(returned) == 2 and (isinstance(first, Enum) or (is_tuple and _may_be_status(first))):
        hint = did_you_mean(first, OUTCOMES) if isinstance(first, str) else ""
        shown = str(first) if isinstance(first, Enum) else quote(first)
        raise _bad_status(f"expected {', '.join(OUTCOMES)}, got {shown}{hint}")
    return "OK", returned


def _may_be_status(first: Any) -> bool:
    """Return whether the first of two values may be meant as a status: `(False, reason)`, `(None, reason)`, a word."""
    if isinstance(first, str):
        return first.isupper() or first.strip().lower() in _STATUS_WORDS
    return first is None or isinstance(first, bool)


def _bad_status(message: str) -> CallError:
    return CallError("bad_status", f"status: {message}. To return several values without a status, return a list")
