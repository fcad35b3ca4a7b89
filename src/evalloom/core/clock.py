"""The current time as the files of evalloom store it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal


def utc_now(timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Return the current time in ISO 8601: `2026-01-31T09:30:00+00:00`."""
    return datetime.now(UTC).isoformat(timespec=timespec)


def utc_now_z() -> str:
    """Return the current time to the millisecond, with `Z` for UTC: `2026-01-31T09:30:00.250Z`."""
    return zulu(utc_now("milliseconds"))


def zulu(time: str) -> str:
    """Return a time of `utc_now` with `Z` for UTC."""
    return time.replace("+00:00", "Z")
