"""The current time as the files of evalloom store it."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns
from typing import Literal

_latest = (0, "")
"""The latest second that was asked for, and how it is written."""


def utc_now(timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Return the current time in ISO 8601: `2026-01-31T09:30:00+00:00`."""
    global _latest
    second, nanoseconds = divmod(time_ns(), 1_000_000_000)
    if second != _latest[0]:
        _latest = (second, datetime.fromtimestamp(second, UTC).isoformat()[:19])
    # Formatted once a second: every run has the time of its start, and to format one takes a microsecond.
    text = _latest[1] if timespec == "seconds" else f"{_latest[1]}.{nanoseconds // 1_000_000:03}"
    return f"{text}+00:00"


def utc_now_z() -> str:
    """Return the current time to the millisecond, with `Z` for UTC: `2026-01-31T09:30:00.250Z`."""
    return zulu(utc_now("milliseconds"))


def zulu(time: str) -> str:
    """Return a time of `utc_now` with `Z` for UTC."""
    return time.replace("+00:00", "Z")
