"""Keeps users' code from changing what belongs to the whole process: working folder, streams, and being only one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

_ours = ""
"""Our working folder while users' code may have left it."""
_users = ""
"""The folder that users' modules changed to when they were imported; empty if none did."""
_replaced: list[TextIO] = []
"""Streams that users' code put into `sys`. They are kept: a wrapper that is collected closes the stream in it."""


def end_forked_child(process: int) -> None:
    """End this process if users' code forked it off ours and then came back into our code.

    It has a copy of the batch and none of our threads: it would wait forever, or run everything a second time.
    """
    if os.getpid() != process:
        with suppress(BaseException):
            sys.stderr.write("evalloom: a forked copy of this process returned from the code under test, and ends\n")
            sys.stderr.flush()
        os._exit(1)


@contextmanager
def importing_users_code() -> Iterator[None]:
    """Come back to our folder and streams after an import. What it prints goes to stderr.

    The functions of a module that leaves the folder run where it went.
    """
    global _users
    ours, process = _current(), os.getpid()
    with _keeping_streams():
        sys.stdout = sys.stderr
        try:
            yield
        finally:
            end_forked_child(process)
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
        # A function that is left behind in its thread may still redirect a stream.
        with _keeping_streams():
            yield
    finally:
        _ours = before
        _change(ours)


def absolute(path: str | Path) -> Path:
    """Return a path from our working folder, wherever users' code has gone."""
    return Path(_ours, path).absolute()


@contextmanager
def _keeping_streams() -> Iterator[None]:
    stdout, stderr = sys.stdout, sys.stderr
    try:
        yield
    finally:
        _replaced.extend(stream for stream in (sys.stdout, sys.stderr) if stream not in (stdout, stderr, *_replaced))
        sys.stdout, sys.stderr = stdout, stderr


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _change(folder: str) -> None:
    if folder:
        with suppress(OSError):
            os.chdir(folder)
