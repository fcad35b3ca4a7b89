"""Raises an exception in a thread that runs users' code, and finds out which code it runs."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from types import FrameType

from msgspec import Struct

_LIBRARIES = (os.path.dirname(os.__file__), f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = str(Path(__file__).resolve().parent.parent)


class Interrupted(BaseException):
    """Raised in users' code that is over its time limit.

    Not an Exception, so that `except Exception` in a loop does not keep the code running.
    """


class Place(Struct, frozen=True):
    """A function of the user, and the line that it has reached."""

    function: str
    where: str
    """As ` at app.py:12`; empty if unknown."""


def interrupt(thread: Thread) -> None:
    """Raise Interrupted in a thread as soon as it executes Python code again."""
    import ctypes  # deferred: few runs need it

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted))


def withdraw_interrupt(thread: Thread) -> None:
    """Take back an interrupt that has not arrived yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), None)


def place_in(frame: FrameType | None) -> Place:
    """Return the outermost function of the user in a stack, and the innermost line of the user's own files."""
    function, where = "", ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen", _OURS)) and not any(part in file for part in _LIBRARIES):
            function = frame.f_code.co_qualname
            where = where or f" at {os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return Place(function, where)
