"""Workflow commands, lines of output that GitHub Actions turns into annotations."""

from __future__ import annotations

from evalloom.core.text import printable


def workflow_command(kind: str, message: str, **properties: str | int) -> str:
    """Return `::error file=a.py,line=1::message`; properties without a value are left out."""
    given = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value != "")
    return f"::{kind}{' ' if given else ''}{given}::{_escape(message)}"


def _property(text: str) -> str:
    # Colons and commas separate the properties of a command.
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _escape(text: str) -> str:
    return printable(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
