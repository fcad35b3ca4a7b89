"""Keeps evalloom in its working folder when users' code calls `os.chdir`, and users' code in its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ours = ""
"""Our working folder while users' code may have left it."""
_users = ""
"""The folder that users' modules changed to when they were imported; empty if none did."""


@contextmanager
def importing_users_code() -> Iterator[None]:
    """Return to the working folder after the import of a module that leaves it; its functions run where it went."""
    global _users
    ours = _current()
    try:
        yield
    finally:
        if ours and (theirs := _current()) != ours:
            _users = theirs
            _change(ours)


@contextmanager
def running_users_code() -> Iterator[None]:
    """Be in the folder of users' code while the block lasts. Our paths must be absolute in it."""
    global _ours
    before, ours = _ours, _current()
    _ours = ours
    _change(_users)
    try:
        yield
    finally:
        _ours = before
        _change(ours)


def absolute(path: str | Path) -> Path:
    """Return a path from our working folder, wherever users' code has gone."""
    return Path(_ours, path).absolute()


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _change(folder: str) -> None:
    if folder:
        with suppress(OSError):
            os.chdir(folder)
